"""From the picture of a cluster to rows: derive the sets that changed, write those whose summary did.

No threads and no cluster calls: whoever owns it feeds the picture and calls `work` again and again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from django.db import Error as DatabaseError

from controlplane.fleet.models import Workload
from controlplane.fleet.picture import Facts, Picture, SetKey
from controlplane.fleet.rollout_state import SETTLED, RolloutState, judge_set
from controlplane.fleet.services import (
    Observation,
    SeenRevision,
    record_absence,
    record_observation,
    record_revisions,
    recorded_digests,
)
from controlplane.fleet.target import templates_digest
from controlplane.fleet.view import RoleView, SetView, derive_set
from policy.canonical import digest

Json = dict[str, Any]

# A set that waits or moves is judged again without a change: waiting becomes stuck by time alone.
LOOK_AGAIN_S = 5.0
# Set and children come over two watches. Only after this long without a change of the set may it be said
# that the roles seen belong to the label seen.
ROLES_CERTAIN_AFTER_S = 3.0

log = structlog.get_logger(__name__)


class Superseded(Exception):
    """A newer watcher has taken the cluster over; nothing was written."""


@dataclass(slots=True)
class Tally:
    """What an observer has done, for logs and benchmarks. Lags in seconds from the oldest change to its
    row."""

    looks: int = 0
    writes: int = 0
    failures: int = 0
    lags: list[float] = field(default_factory=list)


@dataclass(slots=True)
class _Known:
    """What was last written of one set."""

    workload: Workload
    written: str
    revisions: str
    recorded: dict[str, str]


class Observer:
    """One cluster under one fence number. `wake` is told the UIDs of sets that changed in any way, after
    the rows are written: somebody may be waiting for it. One thread calls its methods; the picture may be
    fed by others."""

    def __init__(
        self,
        *,
        cluster_id: int,
        fence: int,
        stuck_after: timedelta,
        wake: Callable[[set[str]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.picture = Picture()
        self.tally = Tally()
        self._cluster_id = cluster_id
        self._fence = fence
        self._stuck_after = stuck_after
        self._wake = wake
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._uids: dict[SetKey, str] = {}
        self._roles_since: dict[str, tuple[str, float]] = {}
        self._gone = False

    def work(self, *, limit: int = 50) -> int:
        """Look at up to `limit` sets that are due; how many were. Raises Superseded; a database error is
        raised too, after everything that was not written has been marked to be looked at again."""
        due = self.picture.due(now=self._clock(), limit=limit)
        changed: set[str] = set()
        for place, (key, since) in enumerate(due):
            try:
                self._look(key, since, changed)
            except (DatabaseError, Superseded):
                for again, _ in due[place:]:
                    self.picture.mark(again, now=self._clock())
                raise
            except Exception:
                # One object that cannot be read must not hide all others.
                self.tally.failures += 1
                log.exception("set_not_read", namespace=key[0], set=key[1])
        if self._gone:
            self.record_absent()
        if changed:
            self._wake(changed)
        return len(due)

    def record_absent(self) -> None:
        """Mark sets that are not in the picture as gone. Only for a picture that has been complete once."""
        present = self.picture.uids()
        for uid in record_absence(cluster_id=self._cluster_id, fence=self._fence, present=present):
            self._known.pop(uid, None)
            self._roles_since.pop(uid, None)
        self._gone = False

    def _look(self, key: SetKey, since: float, changed: set[str]) -> None:
        facts = self.picture.facts(key)
        self.tally.looks += 1
        before = self._uids.get(key)
        if facts.ds is None:
            self._uids.pop(key, None)
            self._gone = self._gone or before is not None
            changed.update({before} if before else ())
            return
        uid = str(facts.ds["metadata"]["uid"])
        self._uids[key] = uid
        self._gone = self._gone or (before is not None and before != uid)
        changed.add(uid)
        known = self._known.get(uid)
        view = derive_set(
            facts.ds, facts.children, facts.pods, recorded=known.recorded if known else self._recorded(uid)
        )
        state = judge_set(
            view, now=datetime.now(UTC), stuck_after=self._stuck_after, parameters=facts.parameters
        )
        known = self._write(view, state, facts, known, since)
        roles_are_certain = self._write_revisions(view, facts, known)
        if state.name != SETTLED or not roles_are_certain:
            self.picture.mark(key, now=self._clock(), after=LOOK_AGAIN_S)

    def _write(
        self, view: SetView, state: RolloutState, facts: Facts, known: _Known | None, since: float
    ) -> _Known:
        seen = describe(view, state, facts.troubles)
        written = digest([seen.namespace, seen.name, seen.summary])
        if known is not None and known.written == written:
            return known
        workload = record_observation(cluster_id=self._cluster_id, fence=self._fence, seen=seen)
        if workload is None:
            raise Superseded
        self.tally.writes += 1
        self.tally.lags.append(self._clock() - since)
        del self.tally.lags[:-10_000]
        recorded = known.recorded if known else recorded_digests(workload=workload)
        fresh = _Known(workload, written, known.revisions if known else "", recorded)
        self._known[view.uid] = fresh
        return fresh

    def _write_revisions(self, view: SetView, facts: Facts, known: _Known) -> bool:
        """Record the revisions if they differ from what was last recorded; True when the wanted one's roles
        are known for certain, or cannot be known from here."""
        assert facts.ds is not None
        roles: list[Json] = facts.ds["spec"].get("roles") or []
        wanted = templates_digest(roles)
        certain = self._roles_are_certain(view, digest(roles))
        present = [
            SeenRevision(
                label=label,
                started_at=view.started.get(label),
                members=members,
                roles=roles if certain and label == view.target else None,
                roles_digest=wanted if certain and label == view.target else "",
                images=images_of(view, label),
            )
            for label, members in view.members.items()
        ]
        mark = digest([[each.label, list(each.members), dict(each.images), each.roles] for each in present])
        if mark != known.revisions:
            record_revisions(workload=known.workload, present=present)
            known.recorded = recorded_digests(workload=known.workload)
            known.revisions = mark
        return certain or not view.target or not view.target_certain

    def _roles_are_certain(self, view: SetView, roles: str) -> bool:
        """Whether the set has asked for these roles long enough for its children to have been seen."""
        now = self._clock()
        last = self._roles_since.get(view.uid)
        if last is None or last[0] != roles:
            self._roles_since[view.uid] = last = (roles, now)
        return (
            bool(view.target)
            and view.target_certain
            and not view.deleting
            and now - last[1] >= ROLES_CERTAIN_AFTER_S
        )

    def _recorded(self, uid: str) -> dict[str, str]:
        workload = Workload.objects.filter(cluster_id=self._cluster_id, uid=uid).first()
        return recorded_digests(workload=workload) if workload else {}


def describe(view: SetView, state: RolloutState, troubles: dict[str, str]) -> Observation:
    """A set as its row shows it. The headline is what lists need, the summary is everything."""
    keys = view.slice_keys
    roles = [
        {
            "role": name,
            "desired": None if desired is None else desired * len(keys),
            "wanted": sum(role.wanted for role in _of_role(view, name)),
            "ready": sum(role.ready for role in _of_role(view, name)),
        }
        for name, desired in view.desired.items()
    ]
    labels = {label for (_, label, _), role in view.places().items() if role.wanted > 0}
    headline = {
        "roles": roles,
        "slices": len(keys),
        "revisions": sorted(labels),
        "waiting_since": state.as_json()["waiting_since"],
    }
    return Observation(
        uid=view.uid,
        namespace=view.namespace,
        name=view.name,
        state=state.name,
        target_revision=view.target,
        headline=headline,
        summary=view.as_json() | {"rollout": state.as_json(), "nodes": troubles},
    )


def images_of(view: SetView, label: str) -> Json:
    """What the pods of a revision run: role → container → {image, image_ids}; containers that have not
    started are left out, more than one ID means that a tag moved between pulls."""
    found: dict[str, dict[str, Json]] = {}
    for (_, revision, role), child in view.places().items():
        if revision != label:
            continue
        for pod in (pod for group in child.groups for pod in group.pods):
            for name, image in pod.images.items():
                if not image["image_id"]:
                    continue
                entry = found.setdefault(role, {}).setdefault(
                    name, {"image": _asked(child, name) or image["image"], "image_ids": []}
                )
                if image["image_id"] not in entry["image_ids"]:
                    entry["image_ids"] = sorted([*entry["image_ids"], image["image_id"]])
    return found


def _asked(child: RoleView, container: str) -> str:
    for pod in ("worker", "leader"):
        if found := child.containers.get(f"{pod}/{container}"):
            return str(found["image"])
    return ""


def _of_role(view: SetView, name: str) -> list[RoleView]:
    return [role for (_, _, role_name), role in view.places().items() if role_name == name]
