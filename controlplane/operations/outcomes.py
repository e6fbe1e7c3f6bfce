"""One transaction per step: the outcome is written if the claim still stands, or nothing is."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from controlplane import events, queue
from controlplane.audit.actor import worker
from controlplane.audit.services import record_event
from controlplane.errors import Refused
from controlplane.operations import failpoints, steplist
from controlplane.operations.backoff import MAX_ATTEMPTS, Failure, retry_delay
from controlplane.operations.claims import Claim
from controlplane.operations.clock import brief_transaction, database_now
from controlplane.operations.contract import Abort, Done, Finish, Hold, Outcome, PlannedStep, Wait
from controlplane.operations.models import Operation, Step
from controlplane.operations.transitions import ENDINGS, move
from policy.rollout.machine import Event

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Effect:
    """What applying an outcome did, for the audit row: its code, and what is worth keeping."""

    name: str
    code: str = ""
    facts: Json = field(default_factory=dict)
    refused: bool = False


def record_outcome(claim: Claim, outcome: Outcome | Failure, *, settled: bool, wrote: bool) -> bool:
    """Write what a step led to. False, and nothing written, where the claim has been overtaken.

    `settled`: no call of this claim or an earlier one can still be in flight with effect. `wrote`: the step
    sent a write, so that its look leaves an audit row even where nothing that a person sees has changed.
    Raises Refused where the transition table has no way for this outcome.
    """
    with brief_transaction():
        operation = (
            Operation.objects.select_for_update(no_key=True)
            .filter(pk=claim.operation.pk, fence=claim.fence, state__in=["working", "waiting"])
            .first()
        )
        if operation is None:
            return False
        before = picture(operation)
        effect = _apply(operation, claim.step, outcome, database_now())
        operation.settled = settled
        operation.lease_owner, operation.lease_until = "", None
        visible = isinstance(outcome, Done) or picture(operation) != before
        if visible:
            announce(operation)
        operation.save()
        if visible or wrote:
            _audit(claim, operation, effect, before=before)
        name = claim.step.name if claim.step else ""
        failpoints.reach(failpoints.BEFORE_COMMIT, name, subject=operation.subject_id)
    return True


def picture(operation: Operation) -> Json:
    """What a person sees of the row, small enough for an audit row."""
    seen: Json = {"state": operation.state, "phase": operation.phase}
    if operation.waits_for:
        seen["waits_for"] = {key: value for key, value in operation.waits_for.items() if key != "since"}
    if operation.finding:
        seen["finding"] = operation.finding["code"]
    if operation.attempts:
        seen["attempts"] = operation.attempts
    return seen


def announce(operation: Operation) -> None:
    """Raise the version and tell the screens; the caller saves."""
    operation.version += 1
    operation.changed_at = database_now()
    publish_change(operation)


def publish_change(operation: Operation) -> None:
    """Tell the screens, when the transaction commits."""
    events.publish(
        event="operation-changed",
        object_kind="operation",
        object_id=str(operation.pk),
        data={"state": operation.state, "version": operation.version},
    )


def begin_abort(operation: Operation, *, by: str, reason: str, now: datetime) -> None:
    """Turn round: what was still to come is moot, the kind's abort step plans the way back, and finds in
    `memory["abort"]` who said so (`by` is empty where a rule did) and why. The caller saves."""
    move(operation, Event.ABORT)
    operation.memory = {**operation.memory, "abort": {"by": by, "reason": reason}}
    steplist.skip_pending(operation)
    steplist.put_last(operation, [PlannedStep(operation.abort_step)])
    go_on(operation, now=now)


def go_on(operation: Operation, *, now: datetime) -> None:
    """Clear what the operation stood at, and make it due."""
    operation.waits_for, operation.finding = {}, {}
    operation.attempts, operation.not_before = 0, now
    queue.ring_on_commit(queue.ADVANCE, operation.pk)


def end(operation: Operation, event: Event, *, now: datetime) -> None:
    """Finish with an outcome: targets are free in the same transaction. The caller saves."""
    move(operation, event)
    steplist.skip_pending(operation)
    operation.waits_for, operation.finding, operation.attempts = {}, {}, 0
    operation.finished_at = now
    operation.targets.update(released=True)


def hold(operation: Operation, finding: Hold, *, now: datetime, event: Event = Event.HOLD) -> None:
    """Stop with a finding. The caller saves."""
    move(operation, event)
    operation.finding = {
        "code": finding.code,
        "sentence": finding.sentence,
        "next_action": finding.next_action,
        "facts": finding.facts,
        "since": now.isoformat(),
    }
    operation.memory = {**operation.memory, **finding.remember}
    operation.waits_for, operation.attempts, operation.not_before = {}, 0, now


def _apply(operation: Operation, step: Step | None, outcome: Outcome | Failure, now: datetime) -> Effect:
    match outcome:
        case Failure():
            return _apply_failure(operation, step, outcome, now)
        case Hold():
            hold(operation, outcome, now=now)
            return Effect("held", code=outcome.code, facts=outcome.facts)
        case Wait():
            return _apply_wait(operation, step, outcome, now)
        case Abort():
            if operation.phase == Operation.Phase.ABORTING:
                raise Refused("going-back", f"On its way back a step asked to abort: {outcome.reason}")
            begin_abort(operation, by="", reason=outcome.reason, now=now)
            return Effect("abort", facts={"reason": outcome.reason})
        case Done():
            return _apply_done(operation, step, outcome, now)
        case Finish():
            _close(step, outcome.result, now)
            if outcome.outcome not in ENDINGS:
                raise Refused("no-such-outcome", f"A step ended the operation as {outcome.outcome}.")
            end(operation, ENDINGS[outcome.outcome], now=now)
            return Effect("finish")


def _apply_done(operation: Operation, step: Step | None, outcome: Done, now: datetime) -> Effect:
    _close(step, outcome.result, now)
    if outcome.replace_rest:
        steplist.skip_pending(operation)
    if step is not None:
        steplist.insert_steps(operation, outcome.append, at=step.index + 1)
    operation.memory = {**operation.memory, **outcome.remember}
    operation.promoted = {}
    move(operation, Event.STEP_DONE)
    if outcome.held is None:
        go_on(operation, now=now)
        return Effect("done", facts={"appended": [one.name for one in outcome.append]})
    hold(operation, outcome.held, now=now)
    return Effect("done", code=outcome.held.code, facts=outcome.held.facts)


def _apply_wait(operation: Operation, step: Step | None, outcome: Wait, now: datetime) -> Effect:
    move(operation, Event.WAIT if outcome.person else Event.LOOK_AGAIN)
    before = operation.waits_for
    same = (before.get("what"), before.get("who")) == (outcome.what, outcome.who)
    operation.waits_for = {
        "what": outcome.what,
        "who": outcome.who,
        "since": before["since"] if same and "since" in before else now.isoformat(),
        "until": outcome.until.isoformat() if outcome.until else None,
        "then": outcome.then,
        "person": outcome.person,
        "hold_key": outcome.hold_key,
        "attempt": step.attempt if step else 0,
    }
    operation.memory = {**operation.memory, **outcome.remember}
    operation.attempts = 0
    operation.not_before = now + timedelta(seconds=outcome.seconds)
    if operation.woken:  # rung while this step was looking: what it saw may be old already
        operation.not_before = now
        queue.ring_on_commit(queue.ADVANCE, operation.pk)
    return Effect("wait")


def _apply_failure(operation: Operation, step: Step | None, failure: Failure, now: datetime) -> Effect:
    attempts = operation.attempts + int(failure.counted)
    name = step.name if step else "the step"
    going_back = operation.phase == Operation.Phase.ABORTING
    if attempts >= MAX_ATTEMPTS and not going_back:
        finding = Hold(
            "attempts-used-up",
            f"{name} failed {attempts} times in a row. The last time: {failure.sentence}",
            failure.next_action or "Mend the cause, then retry; or abort.",
            facts={"step": name, "attempts": attempts, "last": failure.as_json()},
        )
        hold(operation, finding, now=now, event=Event.ATTEMPTS_USED_UP)
        return Effect("held", code=finding.code, facts=finding.facts, refused=True)
    operation.attempts = min(attempts, MAX_ATTEMPTS - 1)
    delay = retry_delay(attempts)
    operation.not_before = now + timedelta(seconds=delay)
    move(operation, Event.LOOK_AGAIN)
    operation.waits_for = {
        "what": f"the next try of {name} ({_so_far(attempts, going_back)}): {failure.sentence}",
        "who": "",
        "since": now.isoformat(),
        "until": operation.not_before.isoformat(),
        "then": "tried again for as long as it takes: a way back is never given up"
        if going_back
        else f"tried again; held after {MAX_ATTEMPTS} failures in a row",
        "person": False,
        "hold_key": "",
    }
    return Effect("failed", code=failure.code, facts=failure.facts, refused=True)


def _so_far(attempts: int, going_back: bool) -> str:
    if not going_back:
        return f"{attempts} of {MAX_ATTEMPTS} failed"
    return f"{attempts} failed" if attempts < MAX_ATTEMPTS else "many failed"


def _close(step: Step | None, result: Json, now: datetime) -> None:
    if step is None:
        raise Refused("no-step", "There is no step to finish.")
    step.state, step.result, step.done_at = Step.State.DONE, result, now
    step.save(update_fields=["state", "result", "done_at"])


def _audit(claim: Claim, operation: Operation, effect: Effect, *, before: Json) -> None:
    step = claim.step
    record_event(
        actor=worker(claim.owner, on_behalf_of=operation.started_by.get_username()),
        action=step.name if step else "operations.advance",
        target_kind="operation",
        target_id=str(operation.pk),
        outcome="refused" if effect.refused else "done",
        code=effect.code,
        before=before,
        after={
            **picture(operation),
            "effect": effect.name,
            "facts": effect.facts,
            **({"step": step.index, "attempt": step.attempt} if step else {}),
        },
        fence=claim.fence,
    )
