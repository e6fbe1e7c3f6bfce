"""Documents as sets of fields: the paths of all leaves, with the spelling that managedFields use.

``f:name`` is a key of a map, ``k:{"name":"a"}`` the entry of a list whose entries have a key, ``v:"a"`` a member of
a set; ``.`` is the entry itself. A list without a key, and some maps, are one field.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from deploy.demo.emulator.patches import MERGE_KEYS

Doc = dict[str, Any]
Path = tuple[str, ...]

_KEYS: Mapping[str, tuple[str, ...]] = {
    **{name: keys for name, keys in MERGE_KEYS.items() if name not in ("taints", "addresses")},
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "roles": ("name",),
    "roleStatuses": ("name",),
    "matchConditions": ("name",),
    "variables": ("name",),
    "webhooks": ("name",),
    "listeners": ("name",),
    "claims": ("name",),
    "resourceClaims": ("name",),
    "schedulingGates": ("name",),
}
_WHOLE_MAPS = frozenset(
    {
        "selector",
        "labelSelector",
        "namespaceSelector",
        "objectSelector",
        "nodeSelector",
        "configMapKeyRef",
        "secretKeyRef",
        "fieldRef",
        "resourceFieldRef",
        "roleRef",
        "scaleTargetRef",
    }
)
_NOT_OWNED = frozenset(
    {
        "name",
        "namespace",
        "generateName",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
        "selfLink",
    }
)


def entry_key(field: str, entry: Any) -> Doc | None:
    """What makes an entry of a list the same one as another; None in a list that is one field."""
    if not isinstance(entry, dict):
        return None
    if field == "ports":
        number = "containerPort" if "containerPort" in entry else "port"
        return {number: entry.get(number), "protocol": entry.get("protocol", "TCP")}
    names = _KEYS.get(field)
    if names is None or not all(name in entry for name in names):
        return None
    return {name: entry[name] for name in names}


def is_keyed(field: str, value: Any) -> bool:
    """Whether a list is merged by entry."""
    return isinstance(value, list) and bool(value) and all(entry_key(field, each) for each in value)


def leaves(doc: Doc, beside: Doc | None = None) -> dict[Path, Any]:
    """The owned fields of a document, each with its value; without the large parts that are the same in ``beside``,
    so that comparing two states costs what differs and not what there is."""
    found: dict[Path, Any] = {}
    other = beside or {}
    for key, value in doc.items():
        if key == "metadata":
            known = other.get("metadata", {})
            for name, each in value.items():
                if name not in _NOT_OWNED and (beside is None or known.get(name) != each):
                    found.update(_walk(name, each, ("f:metadata", f"f:{name}")))
        elif key not in ("apiVersion", "kind") and (beside is None or other.get(key) != value):
            found.update(_walk(key, value, (f"f:{key}",)))
    return found


def _walk(field: str, value: Any, at: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and value and field not in _WHOLE_MAPS:
        for key, each in value.items():
            yield from _walk(key, each, (*at, f"f:{key}"))
    elif field == "finalizers" and isinstance(value, list):
        for each in value:
            yield (*at, f"v:{json.dumps(each)}"), each
    elif is_keyed(field, value):
        for each in value:
            inner = (*at, element(entry_key(field, each)))
            yield (*inner, "."), None
            for key, part in each.items():
                yield from _walk(key, part, (*inner, f"f:{key}"))
    else:
        yield at, value


def element(key: Doc | None) -> str:
    """The path element of an entry."""
    return "k:" + json.dumps(key, separators=(",", ":"), sort_keys=True)


def nested(paths: Iterable[Path]) -> Doc:
    """Paths as ``fieldsV1``."""
    root: Doc = {}
    for path in sorted(paths):
        at = root
        for step in path:
            at = at.setdefault(step, {})
    return root


def paths_of(fields: Mapping[str, Any], at: Path = ()) -> Iterator[Path]:
    """The paths in ``fieldsV1``."""
    for step, below in fields.items():
        if below:
            yield from paths_of(below, (*at, step))
        else:
            yield (*at, step)


def written(path: Path) -> str:
    """A path as messages have it: ``.spec.roles[name="prefill"].spec.replicas``."""
    text = ""
    for step in path:
        kind, _, rest = step.partition(":")
        if kind == "f":
            text += f".{rest}"
        elif kind == "k":
            keys = ",".join(f"{name}={json.dumps(value)}" for name, value in json.loads(rest).items())
            text += f"[{keys}]"
        elif kind == "v":
            text += f"[={rest}]"
    return text


def merge(field: str, live: Any, wanted: Any) -> Any:
    """What is wanted over what is there; lists with keys entry by entry, in the order of what is there."""
    if isinstance(live, dict) and isinstance(wanted, dict) and field not in _WHOLE_MAPS:
        merged = dict(live)
        for key, value in wanted.items():
            merged[key] = merge(key, live.get(key), value)
        return merged
    if field == "finalizers" and isinstance(live, list):
        return [*live, *(each for each in wanted if each not in live)]
    if is_keyed(field, live) and is_keyed(field, wanted):
        entries = {element(entry_key(field, each)): each for each in live}
        for each in wanted:
            key = element(entry_key(field, each))
            entries[key] = merge("", entries.get(key), each)
        return list(entries.values())
    return wanted


def take_away(doc: Doc, path: Path) -> None:
    """Remove the field at a path, and maps that are empty then; nothing where it is not there."""
    _remove("", doc, path)


def _remove(field: str, at: Any, path: Path) -> bool:
    """Whether the thing at ``at`` is to go altogether."""
    step, rest = path[0], path[1:]
    kind, _, name = step.partition(":")
    if step == ".":
        return True
    if kind == "f" and isinstance(at, dict) and name in at:
        if not rest or _remove(name, at[name], rest):
            del at[name]
        return not at
    if kind == "v" and isinstance(at, list) and json.loads(name) in at:
        at.remove(json.loads(name))
        return not at
    if kind == "k" and isinstance(at, list):
        for index, entry in enumerate(at):
            if element(entry_key(field, entry)) == step:
                if _remove("", entry, rest):
                    del at[index]
                return not at
    return False
