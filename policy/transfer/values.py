"""A value and where it came from; something that is there and cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

JsonValue: TypeAlias = "None | bool | int | float | str | list[JsonValue] | dict[str, JsonValue]"

Kind = Literal["vllm", "sglang", "trtllm", "unknown"]
Side = Literal["prefill", "decode"]

EVERYTHING = "*"
ANY_VARIABLE = "$*"


@dataclass(frozen=True, slots=True)
class Sourced:
    """A value as it was read. `source` names the place, such as `args[2] --block-size` or `GET /version`."""

    value: JsonValue
    source: str


@dataclass(frozen=True, slots=True)
class Opaque:
    """Settings that exist and cannot be read.

    `covers` is a flag or variable, `*` for every flag and `$*` for every variable that was not seen
    elsewhere. `path` is the file that holds them, where there is one, so that equal files can be recognised by
    digest. `fixed` is true where an equal reason on both sides means equal settings.
    """

    covers: str
    reason: str
    source: str
    path: str | None = None
    fixed: bool = False


def truth(value: JsonValue) -> bool | None:
    """A yes or no as engines accept it: JSON booleans, 0 and 1, and their words in any case; else None."""
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in ("true", "1", "yes", "on"):
        return True
    return False if word in ("false", "0", "no", "off") else None


def whole(value: JsonValue) -> int | None:
    """A whole number of at least 0 as engines accept it, as number or text; else None."""
    if isinstance(value, bool) or value is None:
        return None
    text = str(value).strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def shown(value: JsonValue) -> str:
    """A value as a sentence says it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list):
        return ", ".join(shown(item) for item in value) or "empty"
    if isinstance(value, dict):
        return ", ".join(f"{name} {shown(item)}" for name, item in sorted(value.items())) or "empty"
    return str(value)
