"""advance: claim an operation, do one step of it, write what came of it.

The database is the queue of record. Whoever is told to look claims the row under a new fence number, runs the
step, and writes the outcome only if the claim still stands; a worker that was killed or paused in between has
written nothing, and what it may still have in flight towards the cluster is fenced off by the next claim
before that looks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import structlog
from django.db.models import F
from django.db.models.functions import Least

from controlplane import queue
from controlplane.errors import Refused
from controlplane.fleet.models import Cluster
from controlplane.operations import failpoints
from controlplane.operations.backoff import MAX_ATTEMPTS, Failure, describe_failure
from controlplane.operations.claims import Claim, claim_operation, give_back, still_stands
from controlplane.operations.clock import Clock
from controlplane.operations.contract import Hold, Outcome, StepContext, StepDef, StepRegistry
from controlplane.operations.models import Operation, Step
from controlplane.operations.outcomes import record_outcome

if TYPE_CHECKING:
    from controlplane.kube.client import CallHook, Kube
    from controlplane.kube.resources import Resource

log = structlog.get_logger(__name__)


class Connect(Protocol):
    """Opens a client for a cluster; the engine closes it. fleet.connections.connect_cluster is one."""

    def __call__(self, cluster: Cluster, *, on_call: CallHook | None = None) -> Kube: ...


@dataclass(slots=True)
class Tally:
    """What one claim has done towards the cluster so far."""

    step: str
    subject: str
    wrote: bool = False
    fenced: bool = False
    unanswered: bool = False

    def on_call(self, phase: str, verb: str, resource: Resource, name: str) -> None:
        """The client's hook: count writes, come to the failpoints."""
        failpoints.reach(f"{phase}-call", self.step, subject=self.subject, verb=verb)
        if phase == "before" and verb in failpoints.WRITES:
            self.wrote = True


def advance(*, operation_id: int, steps: StepRegistry, connect: Connect, owner: str) -> str:
    """Do one step of the operation, if it is unfinished, due and free.

    Returns what came of it, for logs: `not-due`, `overtaken` (a verb or another claim came in between;
    nothing was written), or the outcome in lower case (`done`, `wait`, `hold`, `abort`, `finish`, `failure`).

    *Must fence*: a step that writes, and every step whose predecessor may have left a call in flight. A step
    that only looks, after claims whose every call was answered or fenced off, need not raise the number in
    the cluster: nothing of an earlier claim can land any more, so what it sees stays true until somebody
    writes under a new one.
    """
    claim = claim_operation(operation_id=operation_id, owner=owner)
    if claim is None:
        return "not-due"
    tally = Tally(claim.step.name if claim.step else "", claim.operation.subject_id)
    outcome = _attempt(claim, steps, connect, tally)
    settled = (claim.was_settled or tally.fenced) and not tally.unanswered
    try:
        stood = record_outcome(claim, outcome, settled=settled, wrote=tally.wrote)
    except Refused as refusal:
        outcome = Hold(refusal.code, refusal.sentence, refusal.next_action or "Abort, and report this step.")
        stood = record_outcome(claim, outcome, settled=settled, wrote=tally.wrote)
    if not stood:
        _yield_to_newer(claim)
        return "overtaken"
    return type(outcome).__name__.lower()


def wake(*, operation_id: int) -> bool:
    """End a Wait early: something it looks for may have happened. False where there is nothing to wake.

    A back-off after a failure stands. A step that is looking right now is followed by another look at
    once."""
    due = Least(F("not_before"), Clock())
    waiting = Operation.objects.unfinished().filter(pk=operation_id, attempts=0).exclude(state="held")
    return bool(waiting.update(woken=True, not_before=due))


def _attempt(claim: Claim, steps: StepRegistry, connect: Connect, tally: Tally) -> Outcome | Failure:
    """Run the step of a claim. Never raises for what a step may do wrong."""
    step = claim.step
    if step is None:
        return Hold("no-step-left", "The last step did not finish the operation.", "Abort, and report this.")
    if claim.operation.attempts >= MAX_ATTEMPTS:
        return Failure(
            "worker-lost",
            "the worker was lost each time before it could say what happened",
            "Look at the workers' logs and memory, then retry; or abort.",
            {"leases_lost": claim.operation.attempts},
            counted=False,
        )
    definition = steps.get(step.name)
    if definition is None:
        return Failure(
            "unknown-step",
            f"this worker does not know the step {step.name}",
            "Bring all workers to the version that started the operation, then retry.",
            {"step": step.name},
        )
    try:
        with connect(claim.operation.cluster, on_call=tally.on_call) as kube:
            try:
                return _run(claim, step, definition, kube, tally)
            finally:
                tally.unanswered = tally.unanswered or kube.unanswered
    except Exception as error:
        return _failed(claim, step, error, tally)


def _run(claim: Claim, step: Step, definition: StepDef, kube: Kube, tally: Tally) -> Outcome:
    context = StepContext(
        operation=claim.operation,
        cluster=claim.operation.cluster,
        step_id=step.pk,
        step_index=step.index,
        attempt=step.attempt,
        first_claimed_at=step.first_claimed_at or claim.now,
        fence=claim.fence,
        now=claim.now,
        kube=kube,
        must_fence=definition.writes or not claim.was_settled,
        still_ours=partial(still_stands, claim),
    )
    if context.must_fence:
        if finding := definition.fence_world(context):
            return finding
        tally.fenced = True
    return definition.run(context, **step.args)


def _failed(claim: Claim, step: Step, error: Exception, tally: Tally) -> Failure:
    failure = describe_failure(error)
    tally.unanswered = tally.unanswered or failure.unanswered
    line = {"operation": claim.operation.pk, "step": step.name, "fence": claim.fence, "code": failure.code}
    if failure.expected:
        log.info("step_failed", **line, error=failure.sentence)
    else:
        log.exception("step_crashed", **line)
    return failure


def _yield_to_newer(claim: Claim) -> None:
    log.info("claim_overtaken", operation=claim.operation.pk, fence=claim.fence, owner=claim.owner)
    if give_back(claim):
        queue.ring(queue.ADVANCE, claim.operation.pk)
