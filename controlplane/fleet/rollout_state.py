"""The rollout states of a set, each defined by one function of what is there (digest 4).

Several can be true at once; `name_state` gives the gravest, which is what lists show:
hold-breached > wedged > stuck > leaked > not-ready-yet > active > settled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from controlplane.fleet.names import write_time
from controlplane.fleet.parameter import UnreadableParameter, parse_parameter
from controlplane.fleet.view import RoleView, SetView, SliceView

Json = dict[str, Any]

HOLD_BREACHED = "hold-breached"
WEDGED = "wedged"
STUCK = "stuck"
LEAKED = "leaked"
NOT_READY_YET = "not-ready-yet"
ACTIVE = "active"
SETTLED = "settled"
STATES = (HOLD_BREACHED, WEDGED, STUCK, LEAKED, NOT_READY_YET, ACTIVE, SETTLED)

# The controller creates the roles of a new revision one after another; within this time a missing one is no
# wedge.
INIT_GRACE = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class RolloutState:
    """What is true of a set now. `name` is the gravest state; `reasons` maps each true state to sentences."""

    name: str
    reasons: Mapping[str, tuple[str, ...]]
    waiting_since: datetime | None

    def as_json(self) -> Json:
        """The state as JSON values."""
        return {
            "state": self.name,
            "reasons": {name: list(sentences) for name, sentences in self.reasons.items()},
            "waiting_since": write_time(self.waiting_since),
        }


def judge_set(
    view: SetView, *, now: datetime, stuck_after: timedelta, parameters: Iterable[Mapping[str, Any]] = ()
) -> RolloutState:
    """All states of a set. `parameters` are the ConfigMaps that hold it now; `stuck_after` is the longest
    that new groups may need to become ready."""
    reasons: dict[str, tuple[str, ...]] = {}
    found: dict[str, list[str]] = {state: [] for state in STATES}
    found[HOLD_BREACHED] = hold_breaches(view, parameters)
    for key in view.slice_keys:
        found[WEDGED] += wedged_in(view, key, now=now)
        found[LEAKED] += leaked_in(view, key)
        found[NOT_READY_YET] += not_ready_in(view, key)
        found[ACTIVE] += active_in(view, key)
    since = waiting_since(view)
    if found[NOT_READY_YET] and since is not None and now - since > stuck_after:
        found[STUCK] = found[NOT_READY_YET]
    reasons = {state: tuple(sentences) for state, sentences in found.items() if sentences}
    name = next((state for state in STATES if state in reasons), SETTLED)
    return RolloutState(name, reasons, since)


def active_in(view: SetView, slice_key: str) -> list[str]:
    """Active (rolling): a revision other than the wanted one still has groups in a role that the set still
    names, or the wanted revision is missing in a role, or has another number of groups than the set asks
    for."""
    sentences = [
        f"slice {slice_key}: {role.role} of {label} still has {_groups(role.wanted)}"
        for label, role in _others(view, slice_key)
        if role.wanted > 0 and role.role in view.desired
    ]
    for name, desired in view.desired.items():
        role = view.role(slice_key, view.target, name) if view.target else None
        if role is None:
            sentences.append(
                f"slice {slice_key}: {name} of {view.target or 'the wanted revision'} does not exist yet"
            )
        elif desired is not None and role.wanted != desired:
            sentences.append(
                f"slice {slice_key}: {name} of {view.target} has {role.wanted} of {_groups(desired)}"
            )
    return sentences


def not_ready_in(view: SetView, slice_key: str) -> list[str]:
    """Not ready yet: the wanted revision has a role whose reported ready groups differ from its wanted
    ones. This, and nothing about old groups, is what the controller waits for, without a limit (digest
    2.1)."""
    return [
        f"slice {slice_key}: {role.role} of {view.target} has {role.reported} of {_groups(role.wanted)} ready"
        for role in _wanted_roles(view, slice_key)
        if role.reported != role.wanted
    ]


def waiting_since(view: SetView) -> datetime | None:
    """Since when the group of the wanted revision that has waited longest is not ready; None when none waits.

    Stuck = not ready yet, and this is longer ago than the limit."""
    roles = [role for key in view.slice_keys for role in _wanted_roles(view, key)]
    moments = [role.unready_since for role in roles if role.reported != role.wanted and role.unready_since]
    return min(moments, default=None)


def wedged_in(view: SetView, slice_key: str, *, now: datetime) -> list[str]:
    """Wedged: the wanted revision exists in some role and is missing in another, while an old revision has
    groups in a role that the set still names. Missing ones are only made at the start, so this never ends
    (digest 2.5)."""
    present = _wanted_roles(view, slice_key)
    missing = [name for name in view.desired if name not in {role.role for role in present}]
    if not present or not missing or not _old_groups(view, slice_key):
        return []
    youngest = max((role.created_at for role in present if role.created_at), default=None)
    if youngest is not None and now - youngest < INIT_GRACE:
        return []
    return [f"slice {slice_key}: {', '.join(missing)} of {view.target} is missing and will not be created"]


def leaked_in(view: SetView, slice_key: str) -> list[str]:
    """Leaked: the slice is otherwise done (the wanted revision is complete in every role) and other
    revisions have groups only in roles that the set no longer names. The controller counts old groups over
    the roles of the set alone, so it never drains these (digest 2.5)."""
    if _old_groups(view, slice_key) or active_in(view, slice_key):
        return []
    return [
        f"slice {slice_key}: {role.name} keeps {_groups(role.wanted)} that nothing will remove"
        for _, role in _others(view, slice_key)
        if role.wanted > 0
    ]


def hold_breaches(view: SetView, parameters: Iterable[Mapping[str, Any]]) -> list[str]:
    """Hold breached: a standing parameter of the set and the groups that are wanted now disagree (a count
    below its floor or above its ceiling; what a parameter does not name may have none), or it cannot be
    read."""
    sentences: list[str] = []
    for each in parameters:
        try:
            parameter = parse_parameter(each)
        except UnreadableParameter as error:
            sentences.append(f"the parameter {each['metadata']['name']} cannot be read: {error}")
            continue
        if parameter.standing and (parameter.namespace, parameter.set_name) == (view.namespace, view.name):
            sentences += parameter.box.breaches(view.counts())
    return sentences


def _wanted_roles(view: SetView, slice_key: str) -> list[RoleView]:
    slice_view = view.slices.get(slice_key)
    revision = slice_view.revisions.get(view.target) if slice_view and view.target else None
    return list(revision.roles.values()) if revision else []


def _others(view: SetView, slice_key: str) -> list[tuple[str, RoleView]]:
    slice_view: SliceView | None = view.slices.get(slice_key)
    return [
        (label, role)
        for label, revision in (slice_view.revisions if slice_view else {}).items()
        if label != view.target
        for role in revision.roles.values()
    ]


def _old_groups(view: SetView, slice_key: str) -> int:
    return sum(role.wanted for _, role in _others(view, slice_key) if role.role in view.desired)


def _groups(count: int) -> str:
    return f"{count} group" if count == 1 else f"{count} groups"
