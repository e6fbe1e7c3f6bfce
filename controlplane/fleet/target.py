"""Which revision a DisaggregatedSet wants now, found in what its controller has made.

The label is a hash that cannot be recomputed outside the controller, and age does not tell: going back aims
at the older revision (digest 4). So templates are compared: the set's as stored, the LeaderWorkerSet's as
the controller made it from them. What lies between the two is one trip through Go structs and what the
controller injects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from controlplane.fleet.names import INJECTED_LABELS, SET_REVISION, SET_ROLE, created_at, labels_of
from policy.canonical import digest
from policy.topology.quantity import BadQuantity, parse_quantity

Json = dict[str, Any]

# Keys below which Go rewrites numbers in its own spelling (1000m → 1, 0.5 → 500m, 4 → "4").
_QUANTITIES = frozenset({"limits", "requests", "capacity", "sizeLimit", "divisor", "overhead", "storage"})
_POD_TEMPLATES = ("leaderTemplate", "workerTemplate")


@dataclass(frozen=True, slots=True)
class Target:
    """The wanted revision. `label` is empty where nothing of it exists yet. `certain` is False when two
    revisions fit equally well (they differ in the order of roles, or in what Go drops) and the younger one
    was taken."""

    label: str
    certain: bool


def templates_digest(roles: Sequence[Mapping[str, Any]]) -> str:
    """Digest of what makes a revision: the ordered role names and templates, as stored (digest 1.4)."""
    return digest(
        [
            {"name": role["name"], "template": (role.get("spec") or {}).get("leaderWorkerTemplate") or {}}
            for role in roles
        ]
    )


def find_target(
    *,
    roles: Sequence[Mapping[str, Any]],
    children: Iterable[Mapping[str, Any]],
    places_itself: bool,
    recorded: Mapping[str, str],
) -> Target:
    """The revision label among `children` (LeaderWorkerSets of one set, all slices) that `roles` ask for.

    `places_itself`: the set has a placementPolicy, so affinity in the children is the controller's.
    `recorded` maps labels to the templates digest under which they were seen before; a record decides a
    tie.
    """
    by_label: dict[str, list[Mapping[str, Any]]] = {}
    for child in children:
        by_label.setdefault(labels_of(child).get(SET_REVISION, ""), []).append(child)
    templates = {role["name"]: (role.get("spec") or {}).get("leaderWorkerTemplate") or {} for role in roles}
    fitting = [
        label
        for label, members in by_label.items()
        if label and all(_fits(member, templates, places_itself) for member in members)
    ]
    if len(fitting) <= 1:
        return Target(fitting[0] if fitting else "", True)
    wanted = templates_digest(roles)
    proved = [label for label in fitting if recorded.get(label) == wanted]
    if len(proved) == 1:
        return Target(proved[0], True)
    # A label that is on record under other templates (another order of roles) is not it.
    possible = [label for label in fitting if recorded.get(label, wanted) == wanted] or fitting
    youngest = max(possible, key=lambda label: (_newest(by_label[label]), label))
    return Target(youngest, len(possible) == 1)


def same_template(stored: Mapping[str, Any], made: Mapping[str, Any], *, places_itself: bool = False) -> bool:
    """Whether the controller made the template `made` (of a LeaderWorkerSet) from `stored` (of a role).

    Injected labels are left out, affinity too when the set `places_itself`. A value that Go drops when it
    is empty (null, "", 0, false, {}, []) may be absent on the other side; quantities are compared as
    numbers.
    """
    return _same(_bare(stored, places_itself), _bare(made, places_itself), in_quantities=False)


def _fits(child: Mapping[str, Any], templates: Mapping[str, Json], places_itself: bool) -> bool:
    stored = templates.get(labels_of(child).get(SET_ROLE, ""))
    if stored is None:
        return False
    made = (child.get("spec") or {}).get("leaderWorkerTemplate") or {}
    return same_template(stored, made, places_itself=places_itself)


def _bare(template: Mapping[str, Any], places_itself: bool) -> Json:
    bare = dict(template)
    for name in _POD_TEMPLATES:
        pod = bare.get(name)
        if not isinstance(pod, Mapping):
            continue
        pod = dict(pod)
        metadata = dict(pod.get("metadata") or {})
        labels = metadata.get("labels") or {}
        metadata["labels"] = {key: value for key, value in labels.items() if key not in INJECTED_LABELS}
        pod["metadata"] = metadata
        if places_itself:
            pod["spec"] = {key: value for key, value in (pod.get("spec") or {}).items() if key != "affinity"}
        bare[name] = pod
    return bare


def _same(stored: Any, made: Any, *, in_quantities: bool) -> bool:
    if isinstance(stored, Mapping) and isinstance(made, Mapping):
        return all(
            _same(stored.get(key), made.get(key), in_quantities=in_quantities or key in _QUANTITIES)
            for key in {*stored, *made}
        )
    if isinstance(stored, list) and isinstance(made, list):
        return len(stored) == len(made) and all(
            _same(left, right, in_quantities=in_quantities) for left, right in zip(stored, made, strict=True)
        )
    if stored == made and isinstance(stored, bool) == isinstance(made, bool):
        return True
    if stored is None or made is None:
        return _blank(stored, in_quantities) and _blank(made, in_quantities)
    return in_quantities and _same_quantity(stored, made)


def _blank(value: Any, in_quantities: bool) -> bool:
    if isinstance(value, Mapping):
        return all(_blank(each, in_quantities) for each in value.values())
    return value in (None, "", 0, False, []) or (in_quantities and value == "0")


def _same_quantity(left: Any, right: Any) -> bool:
    try:
        return all(isinstance(each, (str, int)) for each in (left, right)) and (
            parse_quantity(left) == parse_quantity(right)
        )
    except BadQuantity:
        return False


def _newest(children: Sequence[Mapping[str, Any]]) -> datetime:
    oldest = datetime.min.replace(tzinfo=UTC)
    return max((created_at(child) or oldest for child in children), default=oldest)
