"""Regular expressions as Prometheus reads them (RE2, anchored at both ends), as far as Python's mean the same.

What the two read differently is refused: a selector that matched other series would give a wrong number.
"""

from __future__ import annotations

import re
from functools import lru_cache

_ESCAPES = frozenset("dDwWnrtf")
_REPEAT = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_MOST_REPEATS = 1000
_TEMPLATE = re.compile(r"\$(?:\$|(\w+)|\{(\w+)\})", re.ASCII)


class BadPattern(ValueError):
    """No regular expression, or one that is not understood here."""


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """The pattern, for use with ``fullmatch``. Raises BadPattern."""
    _check(pattern)
    try:
        return re.compile(pattern, re.DOTALL | re.ASCII)
    except (re.error, OverflowError, RecursionError) as problem:
        raise BadPattern(f"error parsing regexp: {problem}: `{pattern}`") from None


def expand(template: str, found: re.Match[str]) -> str:
    """The template with `$1`, `${1}`, `$name` filled in; what there is no group for is empty, `$$` is a dollar."""

    def one(reference: re.Match[str]) -> str:
        name = reference[1] or reference[2]
        if name is None:
            return "$"
        if name.isdigit():
            return (found[int(name)] or "") if int(name) <= found.re.groups else ""
        return (found[name] or "") if name in found.re.groupindex else ""

    return _TEMPLATE.sub(one, template)


def _check(pattern: str) -> None:
    place, after = 0, ""  # after: "" at a start, "atom", "repeat" or "lazy"
    while place < len(pattern):
        sign = pattern[place]
        if sign == "[":
            place, after = _class_end(pattern, place), "atom"
            continue
        repeat = _REPEAT.match(pattern, place) if sign == "{" else None
        if sign == "{" and repeat is None and pattern[place + 1 : place + 2] == ",":
            raise _unknown(pattern, "{,")
        if sign in "*+?" or repeat:
            after = _repeated(pattern, sign, repeat, after)
            place = repeat.end() if repeat else place + 1
            continue
        place, after = _plain(pattern, place), "" if sign in "(|" else "atom"


def _repeated(pattern: str, sign: str, repeat: re.Match[str] | None, after: str) -> str:
    if after == "repeat" and sign == "?":
        return "lazy"
    if after != "atom":
        raise _unknown(pattern, "a repetition of nothing or of a repetition")
    if repeat and max(int(number or 0) for number in repeat.groups()) > _MOST_REPEATS:
        raise _unknown(pattern, "that many repetitions")
    return "repeat"


def _plain(pattern: str, place: int) -> int:
    """Past one sign, escape or beginning of a group."""
    sign = pattern[place]
    if sign == "\\":
        return _escape_end(pattern, place)
    if sign == "^" and place != 0 or sign == "$" and place != len(pattern) - 1:
        raise _unknown(pattern, f"{sign} inside")
    if pattern.startswith("(?", place):
        for known in ("(?:", "(?P<"):
            if pattern.startswith(known, place):
                end = pattern.find(">", place) + 1 if known == "(?P<" else place + len(known)
                return end or len(pattern)
        raise _unknown(pattern, pattern[place : place + 3])
    return place + 1


def _escape_end(pattern: str, place: int) -> int:
    sign = pattern[place + 1 : place + 2]
    if not sign or sign.isalnum() and sign not in _ESCAPES or not sign.isascii():
        raise _unknown(pattern, f"\\{sign}")
    return place + 2


def _class_end(pattern: str, place: int) -> int:
    start = place
    place += 1
    if pattern[place : place + 1] == "^":
        place += 1
    if pattern[place : place + 1] == "]":
        place += 1
    while place < len(pattern) and pattern[place] != "]":
        if pattern[place] == "[" or pattern[place : place + 2] in ("&&", "--", "~~", "||"):
            raise _unknown(pattern, pattern[start : place + 2])
        place = _escape_end(pattern, place) if pattern[place] == "\\" else place + 1
    if place >= len(pattern):
        raise BadPattern(f"error parsing regexp: missing closing ]: `{pattern[start:]}`")
    return place + 1


def _unknown(pattern: str, what: str) -> BadPattern:
    return BadPattern(f"error parsing regexp: {what} is not understood here: `{pattern}`")
