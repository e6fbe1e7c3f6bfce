"""How a hold is named, since when it stands and until when, and which attempt of it is meant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from controlplane.operations.contract import StepContext

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Standing:
    """A hold at a row. `until` is None where it is kept however long; `then` says what happens at its end."""

    key: str
    since: datetime
    until: datetime | None
    then: str
    reason: str

    @property
    def remember(self) -> Json:
        """What keeps its age through everything that happens at it, a finding that stops the operation included."""
        ends = {"at": self.until.isoformat(), "reason": self.reason} if self.until else {}
        return {"hold_since": {self.key: self.since.isoformat()}, "expires": ends}

    def is_over(self, now: datetime) -> bool:
        """Whether its maximum age has passed."""
        return self.until is not None and now >= self.until


def hold_key(slices: Sequence[str], row: int, planned: int) -> str:
    """How a hold is named in promotes and step approvals; `planned` counts how often rows were planned anew."""
    again = f"-plan-{planned + 1}" if planned else ""
    return f"slice-{'+'.join(slices)}-row-{row}{again}"


def standing_at(context: StepContext, *, slices: Sequence[str], row: int) -> Standing:
    """The hold that an operation has come to at a row: it stands from the first step there, the look at the path."""
    memory, options = context.operation.memory, context.operation.memory["options"]
    key = hold_key(slices, row, int(memory.get("round", 0)))
    kept = (memory.get("hold_since") or {}).get(key)
    since = datetime.fromisoformat(kept) if kept else context.now
    aborts = options["hold_end"] == "abort"
    return Standing(
        key=key,
        since=since,
        until=since + timedelta(seconds=float(options["hold_max_age"])) if aborts else None,
        then="the operation aborts" if aborts else "it keeps standing here",
        reason=f"The hold at row {row} reached its maximum age of {options['hold_max_age']} s.",
    )


def attempt_of(context: StepContext, key: str) -> int:
    """Which attempt at this hold it is: a retry counts up, a step that is put in again goes on counting. What was
    approved for an earlier attempt is no approval of a later one."""
    return int((context.operation.memory.get("hold_base") or {}).get(key, 0)) + context.attempt


def promoted_past(context: StepContext, key: str) -> bool:
    """Whether a person promoted past this hold, at this step or before it was put in again to see the path anew."""
    kept = context.operation.memory.get("promoted_past")
    return context.promoted(key) or kept == {key: attempt_of(context, key)}


def still_promoted(context: StepContext, key: str) -> Json:
    """To remember where the path is looked at again: a word that was given counts on, as votes do. With a finding
    at the path both lapse."""
    return {"promoted_past": {key: attempt_of(context, key)} if promoted_past(context, key) else {}}


def lapsed(context: StepContext, key: str) -> Json:
    """To remember with a finding at the path of this hold: what was approved and promoted before it was about a path
    that was not this one, so the next look at the hold is another attempt."""
    base = dict(context.operation.memory.get("hold_base") or {})
    return {"hold_base": {**base, key: int(base.get(key, 0)) + 1}, "promoted_past": {}}


def same_attempt(context: StepContext, key: str) -> Json:
    """To remember where the step of this hold is put in again (its first attempt then): it stays the same attempt."""
    base = dict(context.operation.memory.get("hold_base") or {})
    return {"hold_base": {**base, key: attempt_of(context, key) - 1}}
