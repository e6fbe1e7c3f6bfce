"""What a change of a set's roles moves: whether it rolls out, what rolls together, what waits for later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policy.rollout.wording import listed

Roles = Sequence[Mapping[str, Any]]

# Copied into a child object when it is created, and outside the revision: they change nothing that exists.
_AT_CREATION = ("startupPolicy", "networkConfig")


@dataclass(frozen=True, slots=True)
class ChangeScope:
    """The parts of a change, by role name.

    `rolls` are all roles that get a new revision: every one as soon as one template differs, because a set
    has one revision over all its roles. `late` are paths of settings that reach pods only with the next
    revision. `sentence` says it in one line.
    """

    template_changed: tuple[str, ...]
    replicas_changed: tuple[str, ...]
    pace_changed: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    reordered: bool
    rolls: tuple[str, ...]
    late: tuple[str, ...]
    sentence: str


def rolls_out(before: Roles, after: Roles) -> bool:
    """Whether writing `after` over `before` gives a new revision.

    The revision covers the ordered list of role names with their whole leaderWorkerTemplate and nothing else
    (lws v0.9.0). Both lists as stored by the API server, `after` from a dry run.
    """
    return _revision_content(before) != _revision_content(after)


def change_scope(before: Roles, after: Roles) -> ChangeScope:
    """What moves together when `after` is written over `before` (both as for `rolls_out`)."""
    old = {str(role.get("name")): role for role in before}
    new = {str(role.get("name")): role for role in after}
    both = [name for name in old if name in new]
    added = tuple(name for name in new if name not in old)
    removed = tuple(name for name in old if name not in new)
    changed = {
        field: tuple(name for name in both if _spec(old[name]).get(field) != _spec(new[name]).get(field))
        for field in ("leaderWorkerTemplate", "replicas", "rolloutStrategy")
    }
    late = [
        f"roles[{name}].spec.{field}"
        for name in both
        for field in _AT_CREATION
        if _spec(old[name]).get(field) != _spec(new[name]).get(field)
    ]
    late += [
        f"roles[{name}].metadata" for name in both if old[name].get("metadata") != new[name].get("metadata")
    ]
    rolls = tuple(new) if rolls_out(before, after) else ()
    reordered = both != [name for name in new if name in old]
    templates = changed["leaderWorkerTemplate"]
    return ChangeScope(
        template_changed=templates,
        replicas_changed=changed["replicas"],
        pace_changed=changed["rolloutStrategy"],
        added=added,
        removed=removed,
        reordered=reordered,
        rolls=rolls,
        late=tuple(late),
        sentence=_sentence(rolls, templates, (added, removed), changed["replicas"], reordered=reordered),
    )


def _spec(role: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = role.get("spec")
    return spec if isinstance(spec, Mapping) else {}


def _revision_content(roles: Roles) -> list[tuple[object, object]]:
    return [(role.get("name"), _spec(role).get("leaderWorkerTemplate")) for role in roles]


def _sentence(
    rolls: tuple[str, ...],
    templates: tuple[str, ...],
    exists: tuple[tuple[str, ...], tuple[str, ...]],
    replicas: tuple[str, ...],
    *,
    reordered: bool,
) -> str:
    if not rolls:
        if not replicas:
            return "No group is restarted and none is added or removed."
        return f"No group is restarted; {listed(replicas)} changes its number of groups in one step."
    added, removed = exists
    causes = []
    if templates:
        causes.append(f"the template of {listed(templates)} changes")
    if added:
        causes.append(f"{listed(added)} is added")
    if removed:
        causes.append(f"{listed(removed)} is removed")
    if reordered:
        causes.append("the order of the roles changes")
    return f"All roles ({listed(rolls)}) roll together because {' and '.join(causes)}."
