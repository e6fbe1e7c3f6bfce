"""Structural schemas (those of CRDs): what they fill in, what they drop, what they refuse.

``x-kubernetes-preserve-unknown-fields`` keeps what a schema does not name; without it unknown fields are dropped, as
the real server does. Rules (``x-kubernetes-validations``) are CEL over ``self`` and, where there was one, ``oldSelf``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from deploy.demo.emulator.expressions import EvaluationFailed, Scope

Doc = dict[str, Any]
Cause = tuple[str, str, str]
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


def fill(schema: Doc, value: Any) -> None:
    """Set the defaults of everything that is there, in place."""
    if isinstance(value, dict):
        for name, inner in (schema.get("properties") or {}).items():
            if name not in value and "default" in inner:
                value[name] = json.loads(json.dumps(inner["default"]))
            elif value.get(name, "") is None and "default" in inner and not inner.get("nullable"):
                value[name] = json.loads(json.dumps(inner["default"]))
            if name in value:
                fill(inner, value[name])
        rest = schema.get("additionalProperties")
        if isinstance(rest, dict):
            for name, inner_value in value.items():
                if name not in (schema.get("properties") or {}):
                    fill(rest, inner_value)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for each in value:
            fill(schema["items"], each)


def prune(schema: Doc, value: Any, *, root: bool = True) -> None:
    """Drop what the schema does not know, in place; apiVersion, kind and metadata of the object itself stay."""
    if isinstance(value, dict):
        known = schema.get("properties") or {}
        rest = schema.get("additionalProperties")
        keep = schema.get("x-kubernetes-preserve-unknown-fields") or rest
        for name in list(value):
            if name in known:
                if not (root and name == "metadata"):
                    prune(known[name], value[name], root=False)
            elif isinstance(rest, dict):
                prune(rest, value[name], root=False)
            elif not keep and not (root and name in ("apiVersion", "kind", "metadata")):
                del value[name]
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for each in value:
            prune(schema["items"], each, root=False)


def causes(schema: Doc, value: Any, old: Any = None) -> list[Cause]:
    """What the schema has against a document: (field path, reason, sentence) each."""
    return list(_check(schema, value, old, ""))


def _check(schema: Doc, value: Any, old: Any, path: str) -> Iterator[Cause]:
    if value is None and schema.get("nullable"):
        return
    wrong = _wrong_type(schema, value, path)
    if wrong:
        yield wrong
        return
    if "enum" in schema and value not in schema["enum"]:
        listed = ", ".join(json.dumps(each) for each in schema["enum"])
        yield (
            path,
            "FieldValueNotSupported",
            f"Unsupported value: {json.dumps(value)}: supported values: {listed}",
        )
    yield from _limits(schema, value, path)
    if isinstance(value, dict):
        yield from _check_object(schema, value, old, path)
    elif isinstance(value, list):
        yield from _check_list(schema, value, old, path)
    yield from _rules(schema, value, old, path)


def _wrong_type(schema: Doc, value: Any, path: str) -> Cause | None:
    if schema.get("x-kubernetes-int-or-string"):
        fits = isinstance(value, int | str) and not isinstance(value, bool)
        wanted = "integer,string"
    else:
        wanted = schema.get("type", "")
        fits = not wanted or (
            isinstance(value, _TYPES[wanted]) and (wanted == "boolean" or not isinstance(value, bool))
        )
    if fits:
        return None
    given = json.dumps(_type_of(value))
    return (
        path,
        "FieldValueTypeInvalid",
        f"Invalid value: {given}: {path} in body must be of type {wanted}: {given}",
    )


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return next(name for name, types in _TYPES.items() if isinstance(value, types))


def _limits(schema: Doc, value: Any, path: str) -> Iterator[Cause]:
    size = len(value) if isinstance(value, str | list | dict) else 0
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    shown = json.dumps(value) if isinstance(value, str) else value
    tests = (
        ("minimum", number is not None and number < schema.get("minimum", 0), "be greater than or equal to"),
        ("maximum", number is not None and number > schema.get("maximum", 0), "be less than or equal to"),
        ("minLength", isinstance(value, str) and size < schema.get("minLength", 0), "be at least"),
        ("maxLength", isinstance(value, str) and size > schema.get("maxLength", 0), "be at most"),
    )
    for key, broken, words in tests:
        if key in schema and broken:
            unit = " chars long" if "Length" in key else ""
            yield (
                path,
                "FieldValueInvalid",
                f"Invalid value: {shown}: {path} in body should {words} {schema[key]}{unit}",
            )
    if isinstance(value, list):
        if size < schema.get("minItems", 0):
            text = f"Invalid value: {size}: {path} in body should have at least {schema['minItems']} items"
            yield path, "FieldValueInvalid", text
        if "maxItems" in schema and size > schema["maxItems"]:
            yield path, "FieldValueTooMany", f"Too many: {size}: must have at most {schema['maxItems']} items"
    if "pattern" in schema and isinstance(value, str) and not re.search(schema["pattern"], value):
        text = f"Invalid value: {shown}: {path} in body should match '{schema['pattern']}'"
        yield path, "FieldValueInvalid", text


def _check_object(schema: Doc, value: Doc, old: Any, path: str) -> Iterator[Cause]:
    before = old if isinstance(old, dict) else {}
    for name in schema.get("required") or ():
        if name not in value:
            yield _under(path, name), "FieldValueRequired", "Required value"
    known = schema.get("properties") or {}
    rest = schema.get("additionalProperties")
    for name, each in value.items():
        inner = known.get(name, rest if isinstance(rest, dict) else None)
        if inner is not None and not (path == "" and name in ("apiVersion", "kind", "metadata")):
            yield from _check(inner, each, before.get(name), _under(path, name))


def _check_list(schema: Doc, value: list[Any], old: Any, path: str) -> Iterator[Cause]:
    items = schema.get("items")
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    before = {_identity(each, keys): each for each in (old or ()) if keys and isinstance(each, dict)}
    seen = set()
    for index, each in enumerate(value):
        at = f"{path}[{index}]"
        if keys and isinstance(each, dict):
            identity = _identity(each, keys)
            if identity in seen:
                yield at, "FieldValueDuplicate", f"Duplicate value: {identity}"
            seen.add(identity)
        if isinstance(items, dict):
            same = before.get(_identity(each, keys)) if keys and isinstance(each, dict) else None
            yield from _check(items, each, same, at)


def _identity(entry: Doc, keys: Any) -> str:
    return json.dumps({key: entry.get(key) for key in keys}, separators=(",", ":"))


def _rules(schema: Doc, value: Any, old: Any, path: str) -> Iterator[Cause]:
    for rule in schema.get("x-kubernetes-validations") or ():
        text = rule["rule"]
        if "oldSelf" in text and old is None:
            continue
        try:
            passed = Scope({"self": value, "oldSelf": old}, {}).value(text)
        except EvaluationFailed as problem:
            yield (
                path,
                "FieldValueInvalid",
                f'Invalid value: "{_type_of(value)}": rule evaluation error: {problem}',
            )
            continue
        if passed is not True:
            said = rule.get("message") or f"failed rule: {text}"
            yield path, "FieldValueInvalid", f'Invalid value: "{_type_of(value)}": {said}'


def _under(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
