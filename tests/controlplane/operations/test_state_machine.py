"""Verbs, steps, losses and restores in any order: no operation leaves the table, no target has two owners."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from controlplane.errors import LockstepError, Refused
from controlplane.kube.errors import Conflict, Unanswered
from controlplane.operations import services
from controlplane.operations.clock import Clock
from controlplane.operations.contract import Abort, Done, Finish, Hold, PlannedStep, Wait
from controlplane.operations.models import FINISHED, Operation, OperationTarget
from policy.rollout.machine import transition
from policy.rollout.refusal import Refusal
from tests.conftest import Cast
from tests.controlplane.operations.toy import (
    ACTOR,
    Play,
    Toy,
    fail,
    give,
    make_cluster,
    make_operation,
    new_operation,
)

pytestmark = pytest.mark.django_db
HOLD = Hold("gate-red", "Red.", "Wait.")
PLAYS: dict[str, Play] = {
    "done": give(Done(remember={"row": 1})),
    "grow": give(Done(append=(PlannedStep("toy.in"),))),
    "replace": give(Done(append=(PlannedStep("toy.in"),), replace_rest=True)),
    "stop": give(Done(held=HOLD)),
    "wait": give(Wait(30, "the row")),
    "person": give(Wait(30, "approval", person=True)),
    "at-hold": give(Wait(30, "promote", person=True, hold_key="row-1")),
    "hold": give(HOLD),
    "abort": give(Abort("too old")),
    "conflict": fail(Conflict("changed", status=409)),
    "unanswered": fail(Unanswered("timed out")),
    "crash": fail(KeyError("oops")),
    **{
        outcome: give(Finish(outcome))
        for outcome in ("succeeded", "aborted", "rolled-back", "failed", "nonsense")
    },
}
VERBS: dict[str, Callable[..., Operation]] = {
    "abort": services.abort_operation,
    "adopt": services.adopt_operation,
    "promote": services.promote_operation,
    "resume": services.resume_operation,
    "retry": services.retry_operation,
    "stop": services.stop_operation,
}
TARGETS = st.sets(st.sampled_from(["a", "b", "c"]), min_size=1)


class Operations(RuleBasedStateMachine):
    """Operations over three sets of one cluster. `seen` is what each row looked like at the last check."""

    people: Cast
    number = 0

    def __init__(self) -> None:
        super().__init__()
        Operations.number += 1
        self.cluster = make_cluster(f"c{Operations.number}")
        self.ids: list[int] = []
        self.seen: dict[int, Operation] = {}

    def rows(self) -> list[Operation]:
        return list(Operation.objects.filter(pk__in=self.ids).order_by("pk"))

    def pick(self, number: int) -> Operation | None:
        rows = self.rows()
        return rows[number % len(rows)] if rows else None

    @rule(sets=TARGETS)
    def start(self, sets: set[str]) -> None:
        taken = set(
            OperationTarget.objects.filter(cluster=self.cluster, released=False).values_list("uid", flat=True)
        )
        try:
            made = make_operation(self.people.operator, cluster=self.cluster, targets=sorted(sets))
        except Refused as refusal:
            assert refusal.code == "target-taken" and taken & sets
            return
        assert not taken & sets
        self.ids.append(made.pk)

    @rule(number=st.integers(0, 99), play=st.sampled_from(sorted(PLAYS)), due=st.booleans())
    def advance(self, number: int, play: str, due: bool) -> None:
        operation = self.pick(number)
        if operation is None:
            return
        if due:
            Operation.objects.filter(pk=operation.pk).update(not_before=Clock())
        self.toy(operation, PLAYS[play]).advance(operation)

    @rule(number=st.integers(0, 99), verb=st.sampled_from(sorted(VERBS)), seen=st.sampled_from([None, 0, 1]))
    def ask(self, number: int, verb: str, seen: int | None) -> None:
        operation = self.pick(number)
        if operation is None:
            return
        version = None if seen is None else operation.version + seen
        possible = not isinstance(transition(operation.state, operation.phase, verb), Refusal)
        try:
            VERBS[verb](operation_id=operation.pk, reason="x", actor=ACTOR, version=version)
        except LockstepError as refusal:
            assert verb != "abort" or refusal.code in ("operation-finished", "stale-edit")
        else:
            assert possible and seen != 1

    @rule(number=st.integers(0, 99), verb=st.sampled_from(sorted(VERBS)), play=st.sampled_from(sorted(PLAYS)))
    def ask_during_a_step(self, number: int, verb: str, play: str) -> None:
        """A verb that was accepted while a worker was at a step takes effect, and the worker's outcome does
        not."""
        operation = self.pick(number)
        if operation is None:
            return
        accepted: list[Operation] = []

        def interrupted(context: Any) -> Any:
            try:
                asked = VERBS[verb](operation_id=operation.pk, reason="x", actor=ACTOR)
                accepted.append(asked)
            except LockstepError:
                pass
            return PLAYS[play](context)

        came = self.toy(operation, interrupted).advance(operation)
        if accepted and accepted[0].version > operation.version:
            assert came == "overtaken"
            after = Operation.objects.get(pk=operation.pk)
            assert (after.version, after.state, after.phase) == (
                accepted[0].version,
                accepted[0].state,
                accepted[0].phase,
            )
            assert after.lease_until is None and not after.settled

    @rule(number=st.integers(0, 99))
    def lose_a_worker(self, number: int) -> None:
        operation = self.pick(number)
        if operation is not None and operation.state in ("working", "waiting"):
            gone = timezone.now() - timedelta(seconds=1)
            Operation.objects.filter(pk=operation.pk).update(
                lease_until=gone, lease_owner="gone", settled=False
            )

    @rule(number=st.integers(0, 99), sets=TARGETS)
    def restore(self, number: int, sets: set[str]) -> None:
        operation = self.pick(number)
        if operation is None:
            return
        new = new_operation(self.cluster, ["toy.one", "toy.end"], sorted(sets))
        try:
            made = services.supersede_operation(
                operation_id=operation.pk, new=new, started_by=self.people.operator, actor=ACTOR
            )
        except Refused as refusal:
            assert refusal.code in ("operation-finished", "target-taken")
        else:
            self.ids.append(made.pk)

    def toy(self, operation: Operation, play: Play) -> Toy:
        step = operation.steps.filter(state="pending").order_by("index").first()
        return Toy(plays={step.name: [play]} if step else {})

    @invariant()
    def rows_are_sound(self) -> None:
        for row in self.rows():
            pending = row.steps.filter(state="pending").exists()
            owned = row.targets.filter(released=False).count()
            assert bool(row.finding) == (row.state == "held")
            assert (row.finished_at is not None) == (row.state in FINISHED)
            if row.state in FINISHED:
                assert not pending and not owned and not row.waits_for
            else:
                assert owned == row.targets.count() > 0
            indexes = list(row.steps.order_by("index").values_list("index", flat=True))
            assert indexes == list(range(len(indexes)))
            self.compare(row)

    def compare(self, row: Operation) -> None:
        before = self.seen.get(row.pk)
        self.seen[row.pk] = row
        if before is None:
            return
        if before.state in FINISHED:
            assert (row.state, row.version, row.fence) == (before.state, before.version, before.fence)
        assert row.version >= before.version and row.fence >= before.fence
        assert row.phase == before.phase or row.phase == "aborting"
        if (row.state, row.phase, row.finding) != (before.state, before.phase, before.finding):
            assert row.version > before.version, "a change that a person sees has a new version"

    @invariant()
    def targets_have_one_owner(self) -> None:
        held = list(
            OperationTarget.objects.filter(cluster=self.cluster, released=False).values_list("kind", "uid")
        )
        assert len(held) == len(set(held))


def test_operations_in_any_order(users: Cast) -> None:
    Operations.people = users
    run_state_machine_as_test(
        Operations,
        settings=settings(
            max_examples=40,
            stateful_step_count=30,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
