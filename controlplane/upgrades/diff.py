"""What a plan changes, in the order a reader wants it: meaning first, then every changed path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from policy.rollout.scope import change_scope

Json = dict[str, Any]


def roles_diff(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> Json:
    """{"sentence", "rolls", "changes": [{"path", "before", "after"}]}; list entries with a name are matched by it."""
    scope = change_scope(before, after)
    changes = [
        {"path": path, "before": old, "after": new}
        for path, old, new in _changes(list(before), list(after), "roles")
    ]
    return {
        "sentence": scope.sentence,
        "rolls": list(scope.rolls),
        "late": list(scope.late),
        "changes": changes,
    }


def _changes(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if old == new:
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in [*old, *(k for k in new if k not in old)]:
            yield from _changes(old.get(key), new.get(key), f"{path}.{key}")
    elif _named(old) and _named(new):
        before, after = {e["name"]: e for e in old}, {e["name"]: e for e in new}
        for name in [*before, *(n for n in after if n not in before)]:
            yield from _changes(before.get(name), after.get(name), f"{path}[{name}]")
        if list(before) != list(after) and set(before) == set(after):
            yield f"{path} (order)", list(before), list(after)
    else:
        yield path, old, new


def _named(value: Any) -> bool:
    """Entries that a name tells apart; a name given twice (allowed for env) would hide one of them."""
    if not isinstance(value, list) or not all(isinstance(e, Mapping) for e in value):
        return False
    names = [e.get("name") for e in value]
    return all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
