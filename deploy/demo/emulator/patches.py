"""The three ways to say what is to change: JSON merge patch, JSON patch, strategic merge patch.

Each takes a document and a body and returns a new document; neither is changed, and parts may be shared with both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deploy.demo.emulator.frozen import thaw
from deploy.demo.emulator.problems import ApiProblem, bad_request

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"

Doc = dict[str, Any]

# By which field the entries of these lists are the same entry, in the built-in kinds. Where several are given, the
# first that the entry has counts (container ports and service ports are both called "ports").
MERGE_KEYS: Mapping[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "ports": ("containerPort", "port"),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "conditions": ("type",),
    "addresses": ("type",),
    "ownerReferences": ("uid",),
    "imagePullSecrets": ("name",),
    "secrets": ("name",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey",),
    "taints": ("key",),
    "podIPs": ("ip",),
    "hostIPs": ("ip",),
}
# Lists of plain values that are merged as sets.
_SETS = frozenset({"finalizers"})


def merge_patch(document: Any, patch: Any) -> Any:
    """RFC 7386: null takes away, lists are replaced."""
    if not isinstance(patch, dict):
        return patch
    merged: Doc = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def json_patch(document: Any, operations: Any) -> Any:
    """RFC 6902. Raises ApiProblem 400 for a body that is no patch, 422 where it does not apply."""
    if not isinstance(operations, list):
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    root = {"": thaw(document)}
    for number, operation in enumerate(operations):
        try:
            _operate(root, operation)
        except (KeyError, IndexError, TypeError, ValueError) as problem:
            raise ApiProblem(
                422,
                "Invalid",
                "the server rejected our request due to an error in our request: "
                f"operation {number} ({operation.get('op')} {operation.get('path')}) does not apply: {problem}",
            ) from problem
    return root[""]


def _operate(root: Doc, operation: Doc) -> None:
    name, path = operation["op"], operation["path"]
    if name in ("move", "copy"):
        value = thaw(_read(root, operation["from"]))
        if name == "move":
            _remove(root, operation["from"])
        _add(root, path, value)
    elif name == "test":
        if _read(root, path) != operation.get("value"):
            raise ValueError("the tested value is another one")
    elif name == "remove":
        _remove(root, path)
    elif name == "replace":
        _read(root, path)
        parent, last = _parent(root, path)
        parent[int(last) if isinstance(parent, list) else last] = operation["value"]
    elif name == "add":
        _add(root, path, operation["value"])
    else:
        raise ValueError(f"no such operation: {name}")


def _steps(path: str) -> list[str]:
    # The document itself is the entry "" of an outer one, so that the empty path is no special case.
    return [each.replace("~1", "/").replace("~0", "~") for each in path.split("/")]


def _walk(at: Any, step: str) -> Any:
    return at[int(step)] if isinstance(at, list) else at[step]


def _read(root: Doc, path: str) -> Any:
    at: Any = root
    for step in _steps(path):
        at = _walk(at, step)
    return at


def _parent(root: Doc, path: str) -> tuple[Any, str]:
    *steps, last = _steps(path)
    at: Any = root
    for step in steps:
        at = _walk(at, step)
    return at, last


def _add(root: Doc, path: str, value: Any) -> None:
    parent, last = _parent(root, path)
    if isinstance(parent, list):
        index = len(parent) if last == "-" else int(last)
        if not 0 <= index <= len(parent):
            raise IndexError("beyond the end of the list")
        parent.insert(index, value)
    else:
        parent[last] = value


def _remove(root: Doc, path: str) -> None:
    parent, last = _parent(root, path)
    del parent[int(last) if isinstance(parent, list) else last]


def strategic_patch(document: Any, patch: Any, field: str = "") -> Any:
    """A merge patch that knows by which key the entries of a list are the same one (built-in kinds only).

    Understands ``$patch: delete`` and ``$patch: replace``, and ``$deleteFromPrimitiveList`` for finalizers.
    """
    if isinstance(patch, dict):
        return _merge_maps(document, patch)
    if isinstance(patch, list):
        if field in _SETS and isinstance(document, list):
            return [*document, *(each for each in patch if each not in document)]
        if field in MERGE_KEYS and all(isinstance(each, dict) for each in patch):
            return _merge_lists(document if isinstance(document, list) else [], patch, MERGE_KEYS[field])
    return patch


def _merge_maps(document: Any, patch: Doc) -> Doc:
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    merged: Doc = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            merged[name] = [each for each in merged.get(name, []) if each not in value]
        elif key.startswith("$setElementOrder/") or key in ("$patch", "$retainKeys"):
            continue
        elif value is None or (isinstance(value, dict) and value.get("$patch") == "delete"):
            merged.pop(key, None)
        else:
            merged[key] = strategic_patch(merged.get(key), value, key)
    return merged


def merge_key(entry: Doc, keys: tuple[str, ...]) -> tuple[str, Any] | None:
    """The key field of an entry and its value; None where it has none."""
    return next(((key, entry[key]) for key in keys if key in entry), None)


def _merge_lists(document: list[Any], patch: list[Doc], keys: tuple[str, ...]) -> list[Any]:
    if any(each.get("$patch") == "replace" for each in patch):
        return [each for each in patch if "$patch" not in each]
    merged = list(document)
    for entry in patch:
        wanted = merge_key(entry, keys)
        at = next((n for n, each in enumerate(merged) if wanted and merge_key(each, keys) == wanted), None)
        if entry.get("$patch") == "delete":
            if at is not None:
                del merged[at]
        elif at is None:
            merged.append(_merge_maps({}, entry))
        else:
            merged[at] = _merge_maps(merged[at], entry)
    return merged
