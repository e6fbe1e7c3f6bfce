"""A draft: what a person asks to change on a DisaggregatedSet, checked and written into its roles.

Roles are plain dicts as in `spec.roles` of the set. As JSON a draft is

    {"roles": {"prefill": {"image": "…", "args": ["…"], "env": {"A": "1", "GONE": null},
                           "resources": {"limits": {"cpu": "8"}}, "startupProbe": {…}, "container": "engine",
                           "leader": {…}, "worker": {…}, "replicas": 4, "maxSurge": 1, "maxUnavailable": 0}}}

Container fields of a role go to its leader and its worker template; the same fields under `leader` or
`worker` go to that one alone. null removes a variable, a resource or a probe. Nothing else can be said in a
draft: the account that writes it must not become anybody's way to more rights.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policy.rollout.draft_fields import PACE_FIELDS, Setting, read_container, read_pace, read_replicas
from policy.rollout.refusal import Refusal
from policy.rollout.refused import refused_changes
from policy.rollout.scope import rolls_out

__all__ = [
    "ContainerChange",
    "Draft",
    "DraftRefused",
    "RoleChange",
    "apply_draft",
    "parse_draft",
    "refused_changes",
    "rolls_out",
]

_SIDES = {"leader": "leaderTemplate", "worker": "workerTemplate"}


class DraftRefused(ValueError):
    """The draft cannot be read or does not fit the roles. `refusals` names every field at fault."""

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        super().__init__("; ".join(f"{refusal.path}: {refusal.sentence}" for refusal in refusals))
        self.refusals = tuple(refusals)


@dataclass(frozen=True, slots=True)
class ContainerChange:
    """Settings for one container of a template: the named one, or the only one when `container` is empty."""

    container: str
    settings: tuple[Setting, ...]


@dataclass(frozen=True, slots=True)
class RoleChange:
    """What changes on one role. `both` goes to leader and worker template, then `leader` and `worker`."""

    both: ContainerChange
    leader: ContainerChange
    worker: ContainerChange
    replicas: int | None
    pace: Mapping[str, int | str]  # maxSurge, maxUnavailable as written; absent: unchanged


@dataclass(frozen=True, slots=True)
class Draft:
    """Changes by role name."""

    roles: Mapping[str, RoleChange]


def parse_draft(document: object) -> Draft:
    """The draft in a JSON document (see the module). Raises DraftRefused with every field that is wrong."""
    refusals: list[Refusal] = []
    roles = document.get("roles") if isinstance(document, Mapping) else None
    if not isinstance(roles, Mapping) or not roles:
        raise DraftRefused(
            [Refusal("draft-empty", "the draft names no role", "give at least one role under roles", "roles")]
        )
    if isinstance(document, Mapping):
        refusals += [_unknown(str(key), str(key)) for key in document if key != "roles"]
    changes = {str(name): _read_role(change, f"roles[{name}]", refusals) for name, change in roles.items()}
    if refusals:
        raise DraftRefused(refusals)
    return Draft(roles=changes)


def apply_draft(roles: Sequence[Mapping[str, Any]], draft: Draft) -> list[dict[str, Any]]:
    """The roles with the draft written into them: a new list, same order, the input left as it is.

    Raises DraftRefused when the draft names a role, template or container that does not exist, when a value
    for leader and worker would overwrite two different ones, or when a field belongs to somebody else.
    """
    changed = [copy.deepcopy(dict(role)) for role in roles]
    by_name = {str(role.get("name")): role for role in changed}
    refusals: list[Refusal] = []
    for name, change in draft.roles.items():
        path = f"roles[{name}]"
        if name not in by_name:
            known = ", ".join(by_name)
            refusals.append(
                Refusal("role-unknown", f"the set has no role {name}", f"use one of {known}", path)
            )
            continue
        refusals += _apply_role(by_name[name], change, path)
    if refusals:
        raise DraftRefused(refusals)
    return changed


def _unknown(field: str, path: str) -> Refusal:
    return Refusal(
        "not-in-a-draft",
        f"{field} is not something that a draft may change",
        "export the plan and let the owner of the set write it",
        path,
    )


def _read_role(change: object, path: str, refusals: list[Refusal]) -> RoleChange:
    faults = len(refusals)
    if not isinstance(change, Mapping):
        refusals.append(
            Refusal("draft-malformed", "the changes of a role are an object", "write them by field", path)
        )
        change = {}
    own = {"leader", "worker", "replicas", *PACE_FIELDS}
    sides = {}
    for side in _SIDES:
        sides[side] = _read_change(change.get(side, {}), f"{path}.{side}", refusals)
    both = _read_change({k: v for k, v in change.items() if k not in own}, path, refusals)
    replicas = read_replicas(change, path, refusals)
    pace = read_pace(change, path, refusals)
    found = (both.settings, sides["leader"].settings, sides["worker"].settings, pace, replicas)
    if not any(found) and len(refusals) == faults:
        refusals.append(Refusal("draft-empty", "nothing changes", "name a field or leave the role out", path))
    return RoleChange(both=both, leader=sides["leader"], worker=sides["worker"], replicas=replicas, pace=pace)


def _read_change(document: object, path: str, refusals: list[Refusal]) -> ContainerChange:
    if not isinstance(document, Mapping):
        refusals.append(Refusal("draft-malformed", "this is not an object", "write it by field", path))
        return ContainerChange("", ())
    container = document.get("container", "")
    if not isinstance(container, str):
        refusals.append(
            Refusal("draft-malformed", "a container is named by text", "give its name", f"{path}.container")
        )
        container = ""
    settings, unknown = read_container(document, path, refusals)
    refusals += [_unknown(field, f"{path}.{field}") for field in unknown]
    return ContainerChange(container, settings)


def _apply_role(role: dict[str, Any], change: RoleChange, path: str) -> list[Refusal]:
    spec = role.setdefault("spec", {})
    refusals = _apply_replicas(role, change, path)
    if change.replicas is not None:
        spec["replicas"] = change.replicas
    if change.pace:
        refusals += _apply_pace(spec, change.pace, path)
    templates = _templates(spec)
    if change.both.settings:
        refusals += _write(templates, change.both, path, both=True)
    for side, own in (("leader", change.leader), ("worker", change.worker)):
        if not own.settings:
            continue
        if side not in templates:
            sentence, action = f"the role has no {side} template", "leave it out"
            if side == "leader":
                action = "leader and worker run the worker template here: use the fields of the role itself"
            refusals.append(Refusal("template-unknown", sentence, action, f"{path}.{side}"))
            continue
        refusals += _write({side: templates[side]}, own, f"{path}.{side}", both=False)
    return refusals


def _apply_replicas(role: Mapping[str, Any], change: RoleChange, path: str) -> list[Refusal]:
    external = (role.get("scaling") or {}).get("mode") == "External"
    if change.replicas is None or not external:
        return []
    return [
        Refusal(
            "replicas-owned-by-scaler",
            "the number of groups of this role belongs to its scaler",
            "change it on the scaler",
            f"{path}.replicas",
        )
    ]


def _apply_pace(spec: dict[str, Any], pace: Mapping[str, int | str], path: str) -> list[Refusal]:
    strategy = spec.setdefault("rolloutStrategy", {})
    strategy.setdefault("type", "RollingUpdate")
    block = strategy.get("rollingUpdateConfiguration")
    if block is None:
        # Without a block the pace is 1 and 0; a new block would make a missing maxUnavailable 1.
        block = {"maxSurge": 1, "maxUnavailable": 0}
    strategy["rollingUpdateConfiguration"] = block = {**block, **pace}
    nothing = (0, "0%")
    if block.get("maxSurge", 0) in nothing and block.get("maxUnavailable", 1) in nothing:
        sentence = "surge and unavailable are both 0, so no group could ever move"
        return [Refusal("pace-zero", sentence, "raise one of them", f"{path}.maxSurge")]
    return []


def _templates(spec: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found = {}
    for side, key in _SIDES.items():
        template = (spec.get("leaderWorkerTemplate") or {}).get(key)
        if isinstance(template, dict):
            found[side] = template
    return found


def _write(
    templates: Mapping[str, dict[str, Any]], change: ContainerChange, path: str, *, both: bool
) -> list[Refusal]:
    containers = []
    for side, template in templates.items():
        found = _find_container(template, change.container, side, path)
        if isinstance(found, Refusal):
            return [found]
        containers.append(found)
    refusals = []
    for setting in change.settings:
        values = [setting.read(container) for container in containers]
        where = f"{path}.{setting.label}"
        if both and any(value != values[0] for value in values):
            refusals.append(
                Refusal(
                    "leader-and-worker-differ",
                    f"leader and worker have different values of {setting.label}",
                    "give the value under leader, under worker, or under each",
                    where,
                )
            )
        elif any(isinstance(value, dict) and "valueFrom" in value for value in values):
            refusals.append(
                Refusal(
                    "value-from-elsewhere",
                    f"{setting.label} is filled from a Secret, a ConfigMap or a field",
                    "export the plan and let the owner of the set change it",
                    where,
                )
            )
        else:
            for container in containers:
                setting.write(container)
    return refusals


def _find_container(template: Mapping[str, Any], name: str, side: str, path: str) -> dict[str, Any] | Refusal:
    containers: list[dict[str, Any]] = (template.get("spec") or {}).get("containers") or []
    names = ", ".join(_names(containers))
    if name:
        for container in containers:
            if container.get("name") == name:
                return container
        sentence = f"the {side} template has no container {name}"
        return Refusal("container-unknown", sentence, f"use one of {names}", f"{path}.container")
    if len(containers) == 1:
        return containers[0]
    sentence = f"the {side} template has {len(containers)} containers"
    return Refusal("container-needed", sentence, f"name one of {names}", f"{path}.container")


def _names(containers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for container in containers:
        yield str(container.get("name"))
