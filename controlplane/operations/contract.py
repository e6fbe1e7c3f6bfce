"""What a step is handed and what it hands back. Kinds of change write steps; the engine knows only names.

A step is one idempotent action or one look, done within seconds. It reads the cluster live through
`context.kube`, never our own rows, and returns an outcome. The engine writes the outcome, the audit row and
the event in one transaction, only if the claim still stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Concatenate, Protocol, TypeAlias

if TYPE_CHECKING:
    from controlplane.fleet.models import Cluster
    from controlplane.kube.client import Kube

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step still to come: its registered name (`upgrades.raise_row`) and JSON arguments."""

    name: str
    args: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hold:
    """Stopped by a finding: red gate, somebody else's write, a row off plan. The step stays the current one;
    it is looked at again after a person's resume, retry or adopt, or made moot by an abort."""

    code: str
    sentence: str
    next_action: str
    facts: Json = field(default_factory=dict)
    remember: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Done:
    """The step is finished. `remember` is merged into the operation's memory (one level: a key replaces its
    value), `append` goes right after this step (with `replace_rest` in the place of everything that was still
    to come), `result` is kept with the step as evidence. With `held` the step is finished and the operation
    stops all the same (a stop step that froze the counts); resume goes on with the next step."""

    result: Json = field(default_factory=dict)
    remember: Json = field(default_factory=dict)
    append: tuple[PlannedStep, ...] = ()
    replace_rest: bool = False
    held: Hold | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again after `seconds`, or earlier when somebody rings `queue.WAKE`. `what` completes "waits for
    …"; `who` may act (empty: nobody needs to); `until` and `then` say when patience ends and what happens
    then. `person` marks a state that waits for people. `hold_key` names the hold the operation stands at:
    only then promote is accepted, and the step finds it in `operation.promoted` (see
    `StepContext.promoted`)."""

    seconds: float
    what: str
    who: str = ""
    until: datetime | None = None
    then: str = ""
    person: bool = False
    hold_key: str = ""
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
    """What a step may know of its operation (the model row satisfies it). Read only: changes go by
    outcomes."""

    id: int
    kind: str
    subject_id: str
    digest: str
    namespace: str
    title: str
    phase: str
    memory: Json
    promoted: Json
    started_at: datetime


@dataclass(slots=True)
class StepContext:
    """Everything a step gets. `fence` is the number of this claim; `now` is the database's clock at the
    claim; `attempt` grows when a person has the step done over (retry) and keys side effects and step
    approvals."""

    operation: OperationFacts
    cluster: Cluster
    step_id: int
    step_index: int
    attempt: int
    first_claimed_at: datetime
    fence: int
    now: datetime
    kube: Kube
    must_fence: bool
    still_ours: Callable[[], bool]  # asks the database whether this claim still stands

    def promoted(self, hold_key: str) -> bool:
        """Whether a person promoted past this hold, for this attempt of the step."""
        seen = self.operation.promoted
        return seen.get("hold_key") == hold_key and seen.get("attempt") == self.attempt


# A registered step: the context, then the planned step's arguments by keyword.
StepFunction: TypeAlias = Callable[Concatenate[StepContext, ...], Outcome]


@dataclass(frozen=True, slots=True)
class StepDef:
    """A registration. `writes`: the step may write to the cluster, so the world is fenced before it runs.
    `fence_world` is the kind's way to raise the number in the cluster; it may itself return a Hold."""

    run: StepFunction
    writes: bool
    fence_world: Callable[[StepContext], Hold | None]


StepRegistry: TypeAlias = Mapping[str, StepDef]


@dataclass(frozen=True, slots=True)
class Again:
    """A run's answer where it has come a part of the way and stored it: it goes on in `seconds`, as a fresh try."""

    seconds: float = 0.0


# A registered run: `run(*, kube: Kube | None, now: datetime, **args) -> summary or Again`. It reads a cluster and
# stores what it found through its room's service. It may be done over after a crash, so storing must be
# idempotent. A LockstepError below status 500 ends the run as failed at once; anything else is retried with
# back-off, and fails for good after five tries. `kube` is None where the run names no cluster.
RunFunction: TypeAlias = Callable[..., Json | Again]
# Told in the transaction that marks the run failed: `failed(*, problem, **args)`, problem as JSON
# {code, sentence, next_action, facts}.
RunFailed: TypeAlias = Callable[..., None]


@dataclass(frozen=True, slots=True)
class RunDef:
    """A registration. `failed` lets the room that asked mark its own row (a plan leaves `checking`)."""

    run: RunFunction
    failed: RunFailed | None = None


RunRegistry: TypeAlias = Mapping[str, RunDef]
