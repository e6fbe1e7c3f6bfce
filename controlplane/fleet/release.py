"""Which LeaderWorkerSet release a cluster runs, as far as its schema tells. Its manager names it nowhere
that a narrow account may read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def guess_release(schema: Mapping[str, Any]) -> str:
    """`0.9.0` for a DisaggregatedSet without slices: only 0.9 has that (digest 0). Newer ones cannot be
    told apart by their schema: an empty string, so that nothing is promised about their planner."""
    spec = (schema.get("properties") or {}).get("spec") or {}
    properties = spec.get("properties") or {}
    return "0.9.0" if "roles" in properties and "slices" not in properties else ""
