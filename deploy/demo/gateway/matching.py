"""Which rule a request meets, which share of it is drawn, and what becomes of its headers. Pure, for the proxy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from random import Random

from multidict import CIMultiDict

from deploy.demo.gateway import names
from deploy.demo.gateway.routes import Backend, Edit, Rule

# Between two neighbours only (RFC 9110, 7.6.1); what is forwarded gets its own.
_HOP_BY_HOP = (
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
)
_ESCAPED = re.compile("%([0-9a-fA-F]{2})")
_UNRESERVED = re.compile("[A-Za-z0-9._~-]")


def clean_target(target: str) -> str:
    """A request target with one spelling of its path: no dot segments, no doubled slashes, no needless escapes."""
    path, mark, query = target.partition("?")
    path = _ESCAPED.sub(_plain, path.replace("\\", "/"))
    kept: list[str] = []
    segments = path.split("/")[1:]
    for place, segment in enumerate(segments):
        if segment == ".." and kept:
            kept.pop()
        if segment not in {".", ".."}:
            kept.append(segment)
        elif place == len(segments) - 1:
            kept.append("")
    return re.sub("/+", "/", "/" + "/".join(kept)) + mark + query


def _plain(escape: re.Match[str]) -> str:
    character = chr(int(escape[1], 16))
    return character if _UNRESERVED.match(character) else escape[0]


def find_rule(rules: Iterable[Rule], target: str, headers: CIMultiDict[str]) -> Rule | None:
    """The first rule that a clean target and the request's headers meet; several values of a name are one list."""
    path = target.partition("?")[0]
    for rule in rules:
        if _meets(rule, path) and all(joined(headers, name) == value for name, value in rule.headers):
            return rule
    return None


def _meets(rule: Rule, path: str) -> bool:
    if path == rule.path:
        return True
    return not rule.exact and path.startswith(rule.path if rule.path == "/" else f"{rule.path}/")


def joined(headers: CIMultiDict[str], name: str) -> str | None:
    """All values of a header as one, or None."""
    values = headers.getall(name, [])
    return ",".join(values) if values else None


def draw(backends: Sequence[Backend], random: Random) -> Backend | None:
    """One share by weight; None where no weight is above 0."""
    weights = [backend.weight for backend in backends]
    return random.choices(backends, weights)[0] if any(weights) else None


def from_client(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """A client's headers without those that only routers and proxies may set."""
    kept = CIMultiDict(headers)
    for name in {name for name in kept if name.lower().startswith("x-envoy-")}.union(names.ROUTER_ONLY):
        kept.popall(name, None)
    return kept


def edit(headers: CIMultiDict[str], edits: Iterable[Edit], *, probe: bool) -> None:
    """Apply a route's edits in their order; those of guarded names not to probes."""
    for each in edits:
        if probe and each.name in names.GUARDED:
            continue
        if each.verb == "add":
            headers.add(each.name, each.value)
            continue
        headers.popall(each.name, None)
        if each.verb == "set":
            headers.add(each.name, each.value)


def forwarded(headers: CIMultiDict[str]) -> CIMultiDict[str]:
    """The headers that go on to the next neighbour."""
    kept = CIMultiDict(headers)
    for name in _HOP_BY_HOP:
        kept.popall(name, None)
    return kept
