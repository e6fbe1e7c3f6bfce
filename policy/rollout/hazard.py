"""One thing that can go wrong with a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["block", "warn", "info"]


@dataclass(frozen=True, slots=True)
class Hazard:
    """A hazard of one plan; a plan has each `id` at most once, whatever the number of roles it concerns.

    `id` is stable and kebab-case. A block must be gone before the plan can be requested, a warning is
    acknowledged by id, an information is shown. `facts` are JSON values behind the sentence.
    """

    id: str
    severity: Severity
    sentence: str
    next_action: str
    facts: Mapping[str, object] = field(default_factory=dict)
