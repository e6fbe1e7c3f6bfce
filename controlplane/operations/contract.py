"""What a step is handed and what it hands back. Kinds of change write steps; the engine knows only names.

A step is one idempotent action or one look, done within seconds. It reads the cluster live through `context.kube`,
never our own rows, and returns an outcome. The engine writes the outcome, the audit row and the event in one
transaction, only if the claim still stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from controlplane.kube.client import Kube

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step still to come: its registered name (`upgrades.raise_row`) and JSON arguments."""

    name: str
    args: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Done:
    """The step is finished. `remember` is merged into the operation's memory, `append` goes after this step,
    `result` is kept with the step as evidence."""

    result: Json = field(default_factory=dict)
    remember: Json = field(default_factory=dict)
    append: tuple[PlannedStep, ...] = ()


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again after `seconds`. `what` completes "waits for …"; `who` may act (empty: nobody needs to);
    `until` and `then` say when patience ends and what happens then. `person` marks a state that waits for people."""

    seconds: float
    what: str
    who: str = ""
    until: datetime | None = None
    then: str = ""
    person: bool = False
    remember: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hold:
    """Stopped by a finding: red gate, somebody else's write, a row off plan. A person (or an abort) goes on."""

    code: str
    sentence: str
    next_action: str
    facts: Json = field(default_factory=dict)
    remember: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Abort:
    """The step decides that the operation goes back (hold expired with end `abort`)."""

    reason: str


@dataclass(frozen=True, slots=True)
class Finish:
    """Last step only: the operation ends with this outcome (succeeded, aborted, rolled-back, failed)."""

    outcome: str
    result: Json = field(default_factory=dict)


Outcome = Done | Wait | Hold | Abort | Finish


class OperationFacts(Protocol):
    """What a step may know of its operation (the model row satisfies it)."""

    id: int
    kind: str
    subject_id: str
    namespace: str
    title: str
    phase: str
    memory: Json
    started_at: datetime


@dataclass(slots=True)
class StepContext:
    """Everything a step gets. `fence` is the number of this claim; `now` is the database's clock at the claim."""

    operation: OperationFacts
    step_id: int
    step_index: int
    attempt: int
    first_claimed_at: datetime
    fence: int
    now: datetime
    kube: Kube
    must_fence: bool
    still_ours: Callable[[], bool]  # asks the database whether this claim still stands


class StepFunction(Protocol):
    """A registered step."""

    def __call__(self, context: StepContext, **args: Any) -> Outcome: ...


@dataclass(frozen=True, slots=True)
class StepDef:
    """A registration. `writes`: the step may write to the cluster, so the world is fenced before it runs.
    `fence_world` is the kind's way to raise the number in the cluster; it may itself return a Hold."""

    run: StepFunction
    writes: bool
    fence_world: Callable[[StepContext], Hold | None]


StepRegistry = Mapping[str, StepDef]


class RunFunction(Protocol):
    """A registered run: reads a cluster (never writes), stores what it found through its room's service."""

    def __call__(self, *, kube: Kube | None, now: datetime, **args: Any) -> Json: ...


RunRegistry = Mapping[str, RunFunction]
