"""metadata.managedFields: who wrote which field last, and server-side apply, which goes by it."""

from __future__ import annotations

from typing import Any

from deploy.demo.emulator.kinds import Kind

Doc = dict[str, Any]


def track_update(kind: Kind, old: Doc | None, new: Doc, *, manager: str, subresource: str, time: str) -> None:
    """Note, in ``new``, that ``manager`` wrote what differs from ``old``."""
