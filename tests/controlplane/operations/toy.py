"""A kind of operation whose steps do what a test says, and a cluster that is a list of calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from django.utils import timezone

from controlplane.access.models import User
from controlplane.audit.actor import Actor
from controlplane.fleet.models import Cluster
from controlplane.kube.resources import CONFIG_MAPS
from controlplane.operations.contract import Done, Finish, Hold, Outcome, PlannedStep, StepContext, StepDef
from controlplane.operations.engine import advance
from controlplane.operations.models import Operation
from controlplane.operations.services import NewOperation, Target, create_operation

ACTOR = Actor(name="olga", kind="person")
Play = Callable[[StepContext], Outcome]


@dataclass
class ToyKube:
    """Calls go to a list, through the same hook as real ones."""

    calls: list[str]
    on_call: Any = None
    unanswered: bool = False
    closed: bool = False

    def write(self, name: str) -> None:
        """One write of a step."""
        self._call("replace", name)

    def read(self, name: str) -> None:
        """One read of a step."""
        self._call("get", name)

    def _call(self, verb: str, name: str) -> None:
        if self.on_call:
            self.on_call("before", verb, CONFIG_MAPS, name)
        self.calls.append(f"{verb} {name}")
        if self.on_call:
            self.on_call("after", verb, CONFIG_MAPS, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self.closed = True


@dataclass
class Toy:
    """`plays` are taken one per claim, by step name; `fenced` collects the numbers that reached the world."""

    plays: dict[str, list[Play]] = field(default_factory=dict)
    looks: frozenset[str] = frozenset()
    calls: list[str] = field(default_factory=list)
    fenced: list[int] = field(default_factory=list)
    seen: list[StepContext] = field(default_factory=list)
    fence_finding: Hold | None = None

    def advance(self, operation: Operation, *, owner: str = "w1") -> str:
        """One `advance` of the engine."""
        return advance(
            operation_id=operation.pk, steps=self.steps(operation), connect=self.connect, owner=owner
        )

    def run(self, operation: Operation, *, at_most: int = 50) -> list[str]:
        """Advance until nothing is due; what came of each."""
        came = []
        for _ in range(at_most):
            came.append(self.advance(operation))
            if came[-1] == "not-due":
                return came
        raise AssertionError(f"still going: {came}")

    def connect(self, cluster: Cluster, *, on_call: Any = None) -> Any:
        """A client."""
        return ToyKube(self.calls, on_call)

    def steps(self, operation: Operation) -> dict[str, StepDef]:
        """A registry of every name that the operation can come to."""
        names = {one.name for one in operation.steps.all()}
        names |= {operation.abort_step, operation.stop_step, operation.adopt_step, *self.plays}
        return {name: StepDef(self._step(name), name not in self.looks, self.fence) for name in names}

    def fence(self, context: StepContext) -> Hold | None:
        """Raise the number in the world."""
        if self.fence_finding is None:
            self.fenced.append(context.fence)
        return self.fence_finding

    def _step(self, name: str) -> Callable[..., Outcome]:
        def run(context: StepContext, **args: Any) -> Outcome:
            self.seen.append(context)
            plays = self.plays.get(name)
            return (plays.pop(0) if len(plays) > 1 else plays[0])(context) if plays else Done()

        return run


def finish(outcome: str) -> Play:
    """A last step."""
    return lambda context: Finish(outcome)


def give(outcome: Outcome) -> Play:
    """A step that says this."""
    return lambda context: outcome


def fail(error: Exception) -> Play:
    """A step that raises this."""

    def play(context: StepContext) -> Outcome:
        raise error

    return play


def make_cluster(name: str = "east", **fields: Any) -> Cluster:
    """A cluster whose view is current."""
    now = timezone.now()
    defaults: dict[str, Any] = {"context": name, "environment": "production", "observed_at": now}
    return Cluster.objects.create(name=name, created_at=now, updated_at=now, **{**defaults, **fields})


def make_operation(
    user: User,
    *,
    cluster: Cluster | None = None,
    steps: Sequence[str] = ("toy.one", "toy.two", "toy.end"),
    targets: Sequence[str] = ("set-1",),
    **fields: Any,
) -> Operation:
    """An operation of the toy kind, started."""
    return create_operation(
        new=new_operation(cluster, steps, targets, **fields), started_by=user, actor=ACTOR
    )


def new_operation(
    cluster: Cluster | None, steps: Sequence[str], targets: Sequence[str], **fields: Any
) -> NewOperation:
    """What the toy kind says about an operation."""
    return NewOperation(
        **{
            "kind": "toy",
            "subject_id": "1",
            "digest": "sha256:0",
            "cluster": cluster or Cluster.objects.first() or make_cluster(),
            "namespace": "models",
            "title": "A toy",
            "reason": "because",
            "targets": [Target("set", uid) for uid in targets],
            "steps": [PlannedStep(name) for name in steps],
            "abort_step": "toy.way_back",
            "stop_step": "toy.freeze",
            "adopt_step": "toy.adopt",
            **fields,
        }
    )
