"""Canonical JSON, its digest, and the redaction that lets a digest cover secrets without showing them.

A digest binds votes, plans and audit rows to content, so two documents with the same meaning must give the
same bytes, and two that differ must not. Key order is therefore removed, list order is kept, and every value
whose text form is not unique (fractional floats, NaN, unknown types) is refused instead of guessed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from typing import TypeAlias

Json: TypeAlias = "None | bool | int | str | list[Json] | dict[str, Json]"

MAX_DEPTH = 100
# Above this a double no longer names one integer.
LARGEST_EXACT_FLOAT = 2**53
SHORTEST_SALT = 16
MARK = "redacted:hmac-sha256:"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class NotCanonical(ValueError):
    """A value that has no single canonical form. `path` names where it stands, such as `$.spec.roles[0]`."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


def canonical_json(value: object) -> bytes:
    """UTF-8 JSON with keys sorted by code point, no white space, and one form for each value.

    Takes None, bool, int, str, mappings with string keys, lists and tuples (written as lists). A float is
    taken only where it is integral and at most 2**53 in size, and is written as that integer, because JSON
    and YAML readers disagree on which kind `1.0` is. Anything else raises NotCanonical with its path.
    """
    plain = _plain(value, "$", 0)
    return json.dumps(
        plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def digest(value: object) -> str:
    """`sha256:<64 hex digits>` over the canonical JSON of value; raises as canonical_json does."""
    return "sha256:" + hashlib.sha256(canonical_json(value)).hexdigest()


def redact(value: object, *, salt: bytes) -> Json:
    """A copy of value in which secrets are replaced by salted hashes; equal inputs give equal copies.

    Replaced: `value` of every entry of a list under `env`; values under a key that ends in `headers`
    (mapping, or list of name/value); `data` and `stringData` of an object of kind Secret; kubectl's
    last-applied annotation, which repeats all of these as text. The hash is an HMAC over name and value, so
    the digest of the copy changes when a secret changes, while neither can be searched without the salt.
    The salt has at least 16 bytes and is kept with the document: another salt gives another digest.
    """
    if len(salt) < SHORTEST_SALT:
        raise ValueError(f"the salt needs at least {SHORTEST_SALT} bytes, got {len(salt)}")

    def mark(name: str, secret: Json) -> Json:
        message = canonical_json([name, secret])
        return MARK + hmac.new(salt, message, hashlib.sha256).hexdigest()

    return _redacted(_plain(value, "$", 0), mark)


def _plain(value: object, path: str, depth: int) -> Json:
    if depth > MAX_DEPTH:
        raise NotCanonical(path, f"nested deeper than {MAX_DEPTH} levels, or contains itself")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return _text(str.__str__(value), path)
    if isinstance(value, float):
        return _whole(value, path)
    if isinstance(value, Mapping):
        return _mapping(value, path, depth)
    if isinstance(value, list | tuple):
        return [_plain(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
    raise NotCanonical(path, f"{type(value).__name__} has no JSON form here; write it as text or numbers")


def _mapping(value: Mapping[object, object], path: str, depth: int) -> Json:
    plain: dict[str, Json] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise NotCanonical(path, f"key {key!r} is {type(key).__name__}, keys are text")
        name = _text(str.__str__(key), path)
        plain[name] = _plain(item, f"{path}.{name}", depth + 1)
    return plain


def _text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NotCanonical(path, "text with a lone surrogate cannot be written as UTF-8") from None
    return value


def _whole(value: float, path: str) -> int:
    if not value.is_integer() or abs(value) > LARGEST_EXACT_FLOAT:
        raise NotCanonical(path, f"{value!r} is not an exact whole number; write fractions as text")
    return int(value)


Mark: TypeAlias = Callable[[str, Json], Json]


def _redacted(value: Json, mark: Mark) -> Json:
    if isinstance(value, list):
        return [_redacted(item, mark) for item in value]
    if not isinstance(value, dict):
        return value
    secret_keys = ("data", "stringData") if value.get("kind") == "Secret" else ()
    return {key: _redacted_entry(key, item, key in secret_keys, mark) for key, item in value.items()}


def _redacted_entry(key: str, item: Json, secret: bool, mark: Mark) -> Json:
    lowered = key.lower()
    # A label may be called `env` too; only a list or mapping under it holds variables.
    if secret or lowered.endswith("headers") or (lowered == "env" and isinstance(item, list | dict)):
        return _all_marked(key, item, mark)
    if key == LAST_APPLIED:
        return mark(key, item)
    return _redacted(item, mark)


def _all_marked(key: str, item: Json, mark: Mark) -> Json:
    if isinstance(item, dict):
        return {name: mark(name, secret) for name, secret in item.items()}
    if isinstance(item, list):
        return _named_values(item, mark)
    return item if item is None else mark(key, item)


def _named_values(item: list[Json], mark: Mark) -> Json:
    """Entries of the shape {name, value}; `valueFrom` names a source and stays; bare text is marked."""
    entries: list[Json] = []
    for entry in item:
        if isinstance(entry, dict):
            name = str(entry.get("name", ""))
            entries.append(
                {k: mark(name, v) if k == "value" else _redacted(v, mark) for k, v in entry.items()}
            )
        else:
            entries.append(mark("", entry))
    return entries
