"""advance: one fenced step, one transaction, or nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F

from controlplane.audit.models import AuditEvent
from controlplane.errors import Refused, Unavailable
from controlplane.kube.errors import Conflict, Unanswered
from controlplane.operations.backoff import retry_delay
from controlplane.operations.clock import Clock
from controlplane.operations.contract import Abort, Done, Hold, Outcome, PlannedStep, StepContext, Wait
from controlplane.operations.models import Operation
from controlplane.operations.services import abort_operation, advance, wake
from tests.controlplane.operations.toy import ACTOR, Toy, fail, finish, give, make_operation

pytestmark = pytest.mark.django_db


@pytest.fixture
def toy() -> Toy:
    return Toy(plays={"toy.end": [finish("succeeded")], "toy.back_end": [finish("aborted")]})


def fresh(operation: Operation) -> Operation:
    return Operation.objects.get(pk=operation.pk)


def make_due(operation: Operation) -> None:
    Operation.objects.filter(pk=operation.pk).update(not_before=Clock())


def lose_lease(operation: Operation) -> None:
    """As if the worker had been killed and its lease had run out."""
    Operation.objects.filter(pk=operation.pk).update(
        lease_until=Clock() - timedelta(seconds=1), settled=False
    )


def states(operation: Operation) -> list[tuple[str, str]]:
    return [(step.name, step.state) for step in operation.steps.order_by("index")]


def test_steps_in_order_to_the_end(toy: Toy, users: Any) -> None:
    operation = make_operation(users.operator)
    assert toy.run(operation) == ["done", "done", "finish", "not-due"]
    after = fresh(operation)
    assert (after.state, after.lease_until, after.settled) == ("succeeded", None, True)
    assert after.finished_at is not None
    assert not after.targets.filter(released=False).exists()
    assert [state for _, state in states(operation)] == ["done"] * 3
    numbers = [context.fence for context in toy.seen]
    assert numbers == sorted(set(numbers)), "every claim takes a higher number"
    rows = list(AuditEvent.objects.filter(actor_kind="worker").order_by("id"))
    assert [row.action for row in rows] == ["toy.one", "toy.two", "toy.end"]
    assert [row.fence for row in rows] == numbers
    assert {row.on_behalf_of for row in rows} == {users.operator.username}


def test_only_the_first_look_and_writes_fence(toy: Toy, users: Any) -> None:
    toy.looks = frozenset({"toy.look"})
    operation = make_operation(
        users.operator, steps=["toy.look", "toy.look", "toy.one", "toy.look", "toy.end"]
    )
    toy.run(operation)
    fences = [context.must_fence for context in toy.seen]
    assert fences == [True, False, True, False, True]
    assert len(toy.fenced) == 3


def test_memory_and_appended_steps(toy: Toy, users: Any) -> None:
    grow = Done(
        remember={"row": 2}, append=(PlannedStep("toy.in", {"n": 1}), PlannedStep("toy.in", {"n": 2}))
    )
    toy.plays["toy.one"] = [give(grow)]
    operation = make_operation(users.operator, memory={"row": 1, "kept": True})
    toy.run(operation)
    assert [name for name, _ in states(operation)] == ["toy.one", "toy.in", "toy.in", "toy.two", "toy.end"]
    assert fresh(operation).memory == {"row": 2, "kept": True}


def test_the_rest_can_be_replaced(toy: Toy, users: Any) -> None:
    toy.plays["toy.one"] = [give(Done(replace_rest=True, append=(PlannedStep("toy.end"),)))]
    operation = make_operation(users.operator, steps=["toy.one", "toy.two", "toy.three"])
    toy.run(operation)
    assert states(operation) == [
        ("toy.one", "done"),
        ("toy.end", "done"),
        ("toy.two", "skipped"),
        ("toy.three", "skipped"),
    ]


def test_a_wait_is_not_before_and_keeps_its_since(toy: Toy, users: Any) -> None:
    toy.plays["toy.one"] = [
        give(Wait(60, "the row", remember={"n": 1})),
        give(Wait(60, "the row")),
        give(Done()),
    ]
    operation = make_operation(users.operator)
    assert toy.run(operation) == ["wait", "not-due"]
    first = fresh(operation)
    assert (first.state, first.memory, first.waits_for["what"]) == ("working", {"n": 1}, "the row")
    make_due(operation)
    toy.advance(operation)
    second = fresh(operation)
    assert second.waits_for["since"] == first.waits_for["since"]
    assert second.version == first.version, "nothing that a person sees has changed"
    assert wake(operation_id=operation.pk)
    assert toy.advance(operation) == "done"
    assert fresh(operation).waits_for == {}


def test_a_wait_for_a_person_is_looked_at_again(toy: Toy, users: Any) -> None:
    toy.plays["toy.one"] = [give(Wait(60, "approval 7", who="approvers", person=True)), give(Done())]
    operation = make_operation(users.operator)
    toy.advance(operation)
    assert fresh(operation).state == "waiting"
    make_due(operation)
    assert toy.advance(operation) == "done"
    assert fresh(operation).state == "working"


def test_a_bell_during_the_look_is_not_lost(toy: Toy, users: Any) -> None:
    def look(context: StepContext) -> Outcome:
        assert wake(operation_id=context.operation.id)
        return Wait(60, "approval 7", person=True)

    toy.plays["toy.one"] = [look, give(Done())]
    operation = make_operation(users.operator)
    assert [toy.advance(operation), toy.advance(operation)] == ["wait", "done"]


def test_a_hold_stands_until_somebody_goes_on(toy: Toy, users: Any) -> None:
    toy.plays["toy.one"] = [give(Hold("gate-red", "The gate is red.", "Wait.", facts={"n": 3}))]
    operation = make_operation(users.operator)
    assert toy.run(operation) == ["hold", "not-due"]
    after = fresh(operation)
    assert after.state == "held"
    assert (after.finding["code"], after.finding["facts"]) == ("gate-red", {"n": 3})
    assert not wake(operation_id=operation.pk), "a bell moves no held operation"
    assert AuditEvent.objects.get(action="toy.one").code == "gate-red"


def test_a_finished_step_can_stop_the_operation(toy: Toy, users: Any) -> None:
    toy.plays["toy.one"] = [give(Done(held=Hold("stopped", "Stopped.", "Resume.")))]
    operation = make_operation(users.operator)
    toy.run(operation)
    assert fresh(operation).state == "held"
    assert states(operation)[0] == ("toy.one", "done")


def test_a_rule_turns_the_operation_round(toy: Toy, users: Any) -> None:
    toy.plays["toy.one"] = [give(Abort("too old"))]
    toy.plays["toy.way_back"] = [give(Done(append=(PlannedStep("toy.back_end"),)))]
    operation = make_operation(users.operator)
    assert toy.run(operation) == ["abort", "done", "finish", "not-due"]
    assert fresh(operation).state == "aborted"
    assert fresh(operation).memory["abort"] == {"by": "", "reason": "too old"}
    assert states(operation)[:3] == [("toy.one", "skipped"), ("toy.two", "skipped"), ("toy.end", "skipped")]


def test_a_conflict_ends_the_step_and_is_tried_again_later(toy: Toy, users: Any) -> None:
    conflict = Conflict("the object has been modified", status=409)
    toy.plays["toy.one"] = [fail(conflict), give(Done())]
    operation = make_operation(users.operator)
    assert toy.run(operation) == ["failure", "not-due"]
    after = fresh(operation)
    assert (after.state, after.attempts, after.settled) == ("working", 1, True)
    assert after.not_before > after.changed_at
    row = AuditEvent.objects.get(action="toy.one")
    assert (row.outcome, row.code) == ("refused", "conflict")
    make_due(operation)
    assert toy.advance(operation) == "done"
    assert fresh(operation).attempts == 0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Conflict("changed", status=409), "conflict"),
        (Unavailable("no-cluster-credentials", "None here."), "no-cluster-credentials"),
        (KeyError("oops"), "unexpected-error"),
    ],
)
def test_five_failures_hold_it(toy: Toy, users: Any, error: Exception, code: str) -> None:
    toy.plays["toy.one"] = [fail(error)]
    operation = make_operation(users.operator)
    for _ in range(5):
        assert fresh(operation).state == "working"
        toy.advance(operation)
        make_due(operation)
    after = fresh(operation)
    assert (after.state, after.finding["code"], after.attempts) == ("held", "attempts-used-up", 0)
    assert after.finding["facts"]["last"]["code"] == code
    assert toy.advance(operation) == "not-due"


def test_a_way_back_is_never_given_up(toy: Toy, users: Any) -> None:
    """Failures and lost workers alike: shown, tried again, never held."""
    toy.plays["toy.way_back"] = [fail(Conflict("changed", status=409))]
    operation = make_operation(users.operator)
    abort_operation(operation_id=operation.pk, reason="stop it", actor=ACTOR)
    for number in range(1, 9):
        toy.advance(operation)
        after = fresh(operation)
        assert (after.state, after.phase) == ("working", "aborting")
        said = after.waits_for["what"]
        assert ("many failed" if number >= 5 else f"{number} failed") in said and "changed" in said
        assert "never given up" in after.waits_for["then"]
        make_due(operation)
    for _ in range(3):
        lose_lease(operation)
        make_due(operation)
        toy.advance(operation)
        assert fresh(operation).state == "working"
    toy.plays["toy.way_back"] = [give(Done(append=(PlannedStep("toy.back_end"),)))]
    make_due(operation)
    toy.run(operation)
    assert fresh(operation).state == "aborted"


def test_an_unanswered_write_makes_the_next_claim_fence(toy: Toy, users: Any) -> None:
    toy.looks = frozenset({"toy.one"})
    toy.plays["toy.one"] = [
        give(Wait(0, "x")),
        fail(Unanswered("timed out")),
        give(Wait(0, "x")),
        give(Wait(0, "x")),
    ]
    operation = make_operation(users.operator)
    settled = []
    for _ in range(4):
        make_due(operation)
        toy.advance(operation)
        settled.append(fresh(operation).settled)
    assert [context.must_fence for context in toy.seen] == [True, False, True, False]
    assert settled == [True, False, True, True]


def test_a_finding_of_the_fence_stops_before_the_step(toy: Toy, users: Any) -> None:
    toy.fence_finding = Hold("foreign-installation", "Not ours.", "Take over.")
    operation = make_operation(users.operator)
    assert toy.advance(operation) == "hold"
    assert toy.seen == []
    assert not fresh(operation).settled, "the world was not fenced"


def test_a_lost_lease_is_a_failed_try_and_the_next_claim_fences(toy: Toy, users: Any) -> None:
    toy.looks = frozenset({"toy.one"})
    toy.plays["toy.one"] = [give(Wait(0, "x"))]
    operation = make_operation(users.operator)
    toy.advance(operation)
    make_due(operation)
    lose_lease(operation)
    toy.advance(operation)
    assert toy.seen[-1].must_fence
    assert fresh(operation).attempts == 0, "the look came through, so the row of failures is over"
    for _ in range(5):
        lose_lease(operation)
        Operation.objects.filter(pk=operation.pk).update(attempts=F("attempts") + 1)
    make_due(operation)
    toy.advance(operation)
    after = fresh(operation)
    assert (after.state, after.finding["facts"]["last"]["code"]) == ("held", "worker-lost")


def test_a_claim_is_exclusive_while_its_lease_runs(toy: Toy, users: Any) -> None:
    def look(context: StepContext) -> Outcome:
        assert context.still_ours()
        assert toy.advance(operation, owner="w2") == "not-due"
        return Done()

    toy.plays["toy.one"] = [look]
    operation = make_operation(users.operator)
    assert toy.advance(operation) == "done"


def test_a_worker_that_slept_past_its_lease_writes_nothing(toy: Toy, users: Any) -> None:
    def sleep(context: StepContext) -> Outcome:
        lose_lease(operation)
        assert not context.still_ours()
        toy.plays["toy.one"] = [give(Done(result={"by": "w2"}))]
        assert toy.advance(operation, owner="w2") == "done"
        return Done(result={"by": "w1"}, append=(PlannedStep("toy.never"),))

    toy.plays["toy.one"] = [sleep]
    operation = make_operation(users.operator)
    assert toy.advance(operation, owner="w1") == "overtaken"
    assert operation.steps.get(index=0).result == {"by": "w2"}
    assert operation.steps.count() == 3
    assert AuditEvent.objects.filter(action="toy.one").count() == 1
    assert fresh(operation).lease_until is None


def test_an_abort_during_a_step_takes_its_commit_away(toy: Toy, users: Any) -> None:
    def slow(context: StepContext) -> Outcome:
        abort_operation(operation_id=operation.pk, reason="stop it", actor=ACTOR)
        assert not context.still_ours()
        assert toy.advance(operation, owner="w2") == "not-due", "two workers never act at once"
        return Done()

    toy.looks = frozenset({"toy.way_back"})
    toy.plays["toy.one"] = [slow]
    toy.plays["toy.way_back"] = [give(Done(append=(PlannedStep("toy.back_end"),)))]
    operation = make_operation(users.operator)
    assert toy.advance(operation) == "overtaken"
    after = fresh(operation)
    assert (after.phase, after.lease_until, after.settled) == ("aborting", None, False)
    assert toy.run(operation) == ["done", "finish", "not-due"]
    assert toy.seen[1].must_fence, "what the overtaken step had in flight is fenced off before the next look"


def test_a_step_nobody_knows_is_a_failure(toy: Toy, users: Any) -> None:
    operation = make_operation(users.operator)
    registry = {"toy.two": toy.steps(operation)["toy.two"]}
    assert advance(operation_id=operation.pk, steps=registry, connect=toy.connect, owner="w") == "failure"
    assert AuditEvent.objects.get(action="toy.one").code == "unknown-step"


def test_an_outcome_that_the_table_refuses_holds(toy: Toy, users: Any) -> None:
    toy.plays["toy.one"] = [finish("aborted")]
    operation = make_operation(users.operator)
    assert toy.advance(operation) == "hold"
    assert (fresh(operation).state, fresh(operation).finding["code"]) == ("held", "not-going-back")
    assert states(operation)[0] == ("toy.one", "pending")


def test_running_out_of_steps_holds(toy: Toy, users: Any) -> None:
    operation = make_operation(users.operator, steps=["toy.one"])
    assert toy.run(operation) == ["done", "hold", "not-due"]
    assert fresh(operation).finding["code"] == "no-step-left"


def test_writes_are_audited_even_where_nothing_visible_changed(toy: Toy, users: Any) -> None:
    def touch(context: StepContext) -> Outcome:
        kube: Any = context.kube
        kube.write("set")
        return Wait(0, "the row")

    toy.plays["toy.one"] = [touch]
    operation = make_operation(users.operator)
    for _ in range(3):
        make_due(operation)
        toy.advance(operation)
    assert toy.calls == ["replace set"] * 3
    assert AuditEvent.objects.filter(action="toy.one").count() == 3


def test_refused_steps_do_not_escape(toy: Toy, users: Any) -> None:
    toy.plays["toy.one"] = [fail(Refused("stale-view", "No.", next_action="Look."))]
    operation = make_operation(users.operator)
    assert toy.advance(operation) == "failure"
    assert "No." in fresh(operation).waits_for["what"]


def test_back_off_doubles_and_is_capped() -> None:
    delays = [retry_delay(attempts, spread=0.5) for attempts in range(1, 12)]
    assert delays[:4] == [delays[0] * factor for factor in (1, 2, 4, 8)]
    assert delays[-1] == delays[-2]
    assert retry_delay(3, spread=0.0) < delays[2] < retry_delay(3, spread=0.999)
