"""The text format of metrics, line by line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

from prometheus_client.utils import floatToGoString

_LINE = re.compile(
    # What stands before a name would be a part of it for Prometheus: such a line is refused.
    r"(?P<head>(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)[ \t]*"
    r"(?:\{(?P<labels>(?:[^\"}]|\"(?:[^\"\\]|\\.)*\")*)\})?)[ \t]*"
    r"(?P<value>[^ \t{}]+)(?:[ \t]+(?P<at>-?\d+))?[ \t]*"
)
_PAIR = re.compile(
    r'[ \t]*(?P<name>[a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"(?P<value>(?:[^"\\]|\\.)*)"[ \t]*(?:,|$)'
)
_COMMENT = re.compile(
    r"[ \t]*#[ \t]*(?P<what>HELP|TYPE)[ \t]+(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:[ \t]+(?P<text>.*))?"
)
_ESCAPED = re.compile(r"\\(.)")
_VALUE = re.compile(
    r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?[iI]nf|[-+]?[iI]nfinity|[nN]a[nN]|NAN|INF|[-+]INF"
)
# The bound of a histogram's bucket, and the share of a summary's quantile, are written in one way only.
_NORMAL = {"histogram": "le", "summary": "quantile"}
_go_text = cast(Callable[[float], str], floatToGoString)
TYPES = frozenset({"counter", "gauge", "histogram", "summary", "untyped"})


class Malformed(ValueError):
    """A page, or a line of one, that is no exposition."""


@dataclass(frozen=True, slots=True)
class Line:
    """A sample: the labels (with `__name__`), its value, its own moment (unix milliseconds) where it brings one, and
    where the value begins in the line."""

    labels: dict[str, str]
    value: float
    at: int | None
    start: int


@dataclass(frozen=True, slots=True)
class Said:
    """What a comment says of a metric: its `TYPE` or its `HELP`."""

    what: str
    name: str
    text: str


def read_line(line: str, kind: str) -> Line | Said | None:
    """A sample, a comment that says something, or nothing. ``kind`` is the last type that was said.

    Raises Malformed.
    """
    if not line or line.isspace():
        return None
    if line.lstrip(" \t").startswith("#"):
        return _comment(line)
    found = _LINE.fullmatch(line)
    if found is None:
        raise Malformed(f"no sample: {line[:100]!r}")
    labels = {"__name__": found["name"], **dict(_pairs(found["labels"] or "", kind))}
    at = found["at"]
    return Line(labels, read_value(found["value"]), None if at is None else int(at), found.start("value"))


def read_value(text: str) -> float:
    """A value as it is written. Raises Malformed."""
    if not _VALUE.fullmatch(text):
        raise Malformed(f"no number: {text[:100]!r}")
    return float(text)


def _comment(line: str) -> Said | None:
    found = _COMMENT.fullmatch(line)
    if found is None:
        return None
    text = (found["text"] or "").strip(" \t")
    if found["what"] == "TYPE" and text not in TYPES:
        raise Malformed(f"no type of metric: {text[:100]!r}")
    return Said(found["what"], found["name"], _unescaped(text) if found["what"] == "HELP" else text)


def _pairs(text: str, kind: str) -> Iterator[tuple[str, str]]:
    place, seen = 0, set()
    while place < len(text):
        found = _PAIR.match(text, place)
        if found is None:
            if text[place:].strip(" \t"):
                raise Malformed(f"no labels: {text[:100]!r}")
            return
        name, value = found["name"], _unescaped(found["value"])
        if name in seen:
            raise Malformed(f"a label twice: {name!r}")
        seen.add(name)
        yield name, _normal(value) if _NORMAL.get(kind) == name else value
        place = found.end()


def _normal(text: str) -> str:
    try:
        return _go_text(read_value(text))
    except Malformed:
        return text


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPED.sub(lambda found: {"n": "\n", '"': '"', "\\": "\\"}.get(found[1], found[0]), text)
