"""Which defaults and which validation belong to a kind: its schema where it has one, else the tables of built-ins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from deploy.demo.emulator import builtin_defaults, builtin_rules, schema
from deploy.demo.emulator.kinds import Kind
from deploy.demo.emulator.problems import bad_request, invalid

Doc = dict[str, Any]


@contextmanager
def _readable(kind: Kind) -> Iterator[None]:
    """What is no such object at all (a list for a map, a part that everything needs left out) is a bad request."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise bad_request(
            f"{kind.kind} in version {kind.version} cannot be handled: {problem!r}"
        ) from problem


def set_defaults(kind: Kind, doc: Doc, *, status_only: bool = False) -> None:
    """Fill in, in place, what the server would have filled in; drop what its schema does not know."""
    known = kind.schema.get(kind.version)
    if known and status_only:
        part = (known.get("properties") or {}).get("status") or {}
        schema.prune(part, doc.get("status"), root=False)
        schema.fill(part, doc.get("status"))
    elif known:
        schema.prune(known, doc)
        schema.fill(known, doc)
    elif not kind.custom and not status_only:
        with _readable(kind):
            builtin_defaults.fill(kind.ref, doc)


def validate(kind: Kind, doc: Doc, old: Doc | None, *, status_only: bool = False) -> None:
    """Raise ApiProblem 422 for a document that the server would refuse; ``old`` is None for a creation."""
    found = builtin_rules.metadata(kind, doc, old)
    known = kind.schema.get(kind.version)
    if known and status_only:
        part = {"status": (known.get("properties") or {}).get("status") or {}}
        found += schema.causes({"properties": part}, {"status": doc.get("status", {})})
    elif known:
        found += schema.causes(known, doc, old)
    elif not kind.custom and not status_only:
        with _readable(kind):
            found += builtin_rules.judge(kind.ref, doc, old)
    if found:
        raise invalid(kind, doc["metadata"].get("name", ""), found)
