"""How names look in one metric source: prefixes and label names that a scrape recipe has chosen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from controlplane.errors import BadInput

# What our labels are called where deploy/target/scrape.yaml is used.
LABELS: Mapping[str, str] = MappingProxyType(
    {
        "namespace": "namespace",
        "set": "set",
        "slice": "slice",
        "role": "role",
        "revision": "revision",
        "pod": "pod",
    }
)
ROUTER_PREFIX = "llm_d_epp_"
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,127}")
_PREFIX = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]{0,63})?")
_HEADER = re.compile(r"[A-Za-z0-9-]{1,100}")
# Labels that the metrics or the queries themselves use.
_TAKEN = frozenset({"le", "part", "metric", "__name__", "quantile"})
_KEYS = frozenset({"prefix", "router_prefix", "labels", "headers", "verify_tls"})


@dataclass(frozen=True, slots=True)
class Source:
    """`prefix` stands before every engine metric (`kserve_`), `router_prefix` before the router's own names.
    `labels` maps our words (the keys of LABELS) to the label names of this source. `headers` names the
    headers that it asks for; their values are mounted secrets."""

    prefix: str = ""
    router_prefix: str = ROUTER_PREFIX
    labels: Mapping[str, str] = field(default_factory=lambda: LABELS)
    headers: tuple[str, ...] = ()
    verify_tls: bool = True


def read_options(options: Mapping[str, Any], *, where: str = "") -> Source:
    """A source from its stored options; what is left out has its default. Raises BadInput
    `metric-options-wrong` with the field, as a dotted path below `where`."""
    for key in options:
        if key not in _KEYS:
            raise _wrong(f"{key!r} is no option of a metric source", f"{where}.{key}")
    return Source(
        prefix=_matching(options, "prefix", "", _PREFIX, where),
        router_prefix=_matching(options, "router_prefix", ROUTER_PREFIX, _PREFIX, where),
        labels=_labels(options.get("labels") or {}, f"{where}.labels"),
        headers=_headers(options.get("headers") or (), f"{where}.headers"),
        verify_tls=_flag(options.get("verify_tls", True), f"{where}.verify_tls"),
    )


def options_of(source: Source) -> dict[str, Any]:
    """The options that `read_options` gives this source for: only what differs from the defaults."""
    plain = Source()
    found: dict[str, Any] = {
        "prefix": source.prefix,
        "router_prefix": source.router_prefix,
        "labels": {ours: theirs for ours, theirs in source.labels.items() if LABELS[ours] != theirs},
        "headers": list(source.headers),
        "verify_tls": source.verify_tls,
    }
    usual = {"prefix": plain.prefix, "router_prefix": plain.router_prefix, "verify_tls": plain.verify_tls}
    return {key: value for key, value in found.items() if value != usual.get(key, type(value)())}


def _matching(options: Mapping[str, Any], key: str, default: str, form: re.Pattern[str], where: str) -> str:
    value = options.get(key, default)
    if not isinstance(value, str) or not form.fullmatch(value):
        raise _wrong("a prefix has letters, digits, _ and :, at most 64", f"{where}.{key}")
    return value


def _labels(given: Any, where: str) -> Mapping[str, str]:
    if not isinstance(given, Mapping):
        raise _wrong("label names are given by our word for them", where)
    for ours, theirs in given.items():
        if ours not in LABELS:
            raise _wrong(f"{ours!r} is none of {', '.join(LABELS)}", f"{where}.{ours}")
        if not isinstance(theirs, str) or not _LABEL.fullmatch(theirs) or theirs in _TAKEN:
            raise _wrong("that cannot be the name of this label", f"{where}.{ours}")
    found = {**LABELS, **given}
    if len(set(found.values())) != len(found):
        raise _wrong("two of the label names are the same", where)
    return MappingProxyType(found)


def _headers(given: Any, where: str) -> tuple[str, ...]:
    if not isinstance(given, list | tuple) or len(given) > 10:
        raise _wrong("headers are a list of at most 10 names", where)
    if not all(isinstance(name, str) and _HEADER.fullmatch(name) for name in given):
        raise _wrong("the name of a header has letters, digits and hyphens; values are not given here", where)
    if len({name.lower() for name in given}) != len(given):
        raise _wrong("a header is named twice", where)
    return tuple(given)


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong("true or false", where)
    return value


def _wrong(sentence: str, where: str) -> BadInput:
    return BadInput(
        "metric-options-wrong",
        f"Options of a metric source: {sentence}.",
        next_action="Mend the named option, or leave it out for its default.",
        field=where.strip("."),
    )
