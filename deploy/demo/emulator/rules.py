"""Which defaults and which validation belong to a kind; the tables are in ``defaults`` and ``validation``."""

from __future__ import annotations

from typing import Any

from deploy.demo.emulator.kinds import Kind

Doc = dict[str, Any]


def set_defaults(kind: Kind, doc: Doc) -> None:
    """Fill in, in place, what the server would have filled in."""


def validate(kind: Kind, doc: Doc, old: Doc | None) -> None:
    """Raise ApiProblem 422 for a document that the server would refuse; ``old`` is None for a creation."""
