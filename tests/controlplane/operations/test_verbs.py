"""What people do to operations, and what they are told when they may not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.audit.models import AuditEvent
from controlplane.errors import LockstepError, NotFound, Refused, StaleEdit
from controlplane.fleet.models import Cluster
from controlplane.operations import services
from controlplane.operations.contract import Done, Hold, PlannedStep, StepContext, Wait
from controlplane.operations.fences import PER_TRANSITION, next_fence
from controlplane.operations.models import Operation
from tests.controlplane.operations.toy import (
    ACTOR,
    Toy,
    finish,
    give,
    make_cluster,
    make_operation,
    new_operation,
)

pytestmark = pytest.mark.django_db
AT_HOLD = Wait(30, "promote past row 3", who="operators", person=True, hold_key="row-3")
VERBS: list[Callable[..., Operation]] = [
    services.abort_operation,
    services.adopt_operation,
    services.promote_operation,
    services.resume_operation,
    services.retry_operation,
    services.stop_operation,
]


@pytest.fixture
def toy() -> Toy:
    return Toy(plays={"toy.end": [finish("succeeded")], "toy.back_end": [finish("aborted")]})


def fresh(operation: Operation) -> Operation:
    return Operation.objects.get(pk=operation.pk)


def do(verb: Callable[..., Operation], operation: Operation, version: int | None = None) -> Operation:
    return verb(operation_id=operation.pk, reason="said so", actor=ACTOR, version=version)


def code_of(verb: Callable[..., Operation], operation: Operation, version: int | None = None) -> str:
    with pytest.raises(LockstepError) as caught:
        do(verb, operation, version)
    return caught.value.code


def test_a_target_has_one_operation(users: Any) -> None:
    first = make_operation(users.operator, targets=["a", "b"])
    with pytest.raises(Refused) as caught:
        make_operation(users.operator, targets=["b", "c"])
    assert caught.value.code == "target-taken"
    assert caught.value.facts["operation"] == first.pk
    assert caught.value.facts["state"] == "working"
    assert Operation.objects.count() == 1, "the refused one left nothing behind"
    make_operation(users.operator, targets=["c"])


def test_the_same_set_in_another_cluster_is_another_target(users: Any) -> None:
    make_operation(users.operator, cluster=make_cluster("east"))
    make_operation(users.operator, cluster=make_cluster("west"))


def test_a_finished_operation_frees_its_targets_and_accepts_nothing(toy: Toy, users: Any) -> None:
    operation = make_operation(users.operator)
    toy.run(operation)
    assert {code_of(verb, operation) for verb in VERBS} == {"operation-finished"}
    make_operation(users.operator)


@pytest.mark.parametrize("verb", VERBS)
def test_a_stale_version_is_refused(verb: Callable[..., Operation], users: Any) -> None:
    operation = make_operation(users.operator)
    with pytest.raises(StaleEdit):
        do(verb, operation, version=operation.version + 1)
    with pytest.raises(NotFound):
        verb(operation_id=0, reason="", actor=ACTOR)


def test_abort_is_always_accepted_and_once_is_enough(toy: Toy, users: Any) -> None:
    toy.plays["toy.way_back"] = [give(Done(append=(PlannedStep("toy.back_end"),)))]
    operation = make_operation(users.operator)
    toy.advance(operation)
    first = do(services.abort_operation, operation, version=fresh(operation).version)
    assert (first.state, first.phase) == ("working", "aborting")
    assert first.memory["abort"] == {"by": "olga", "reason": "said so"}
    second = do(services.abort_operation, operation)
    assert fresh(operation).version == first.version == second.version
    assert operation.steps.filter(name="toy.way_back").count() == 1
    toy.run(operation)
    assert fresh(operation).state == "aborted"
    assert [state for state in operation.steps.order_by("index").values_list("state", flat=True)] == [
        "done",
        "skipped",
        "skipped",
        "done",
        "done",
    ]
    assert AuditEvent.objects.filter(action="operation.abort", reason="said so").count() == 2


def test_abort_from_a_finding_and_again_when_the_way_back_is_held(toy: Toy, users: Any) -> None:
    toy.plays["toy.one"] = [give(Hold("gate-red", "Red.", "Wait."))]
    toy.plays["toy.way_back"] = [give(Hold("webhook-down", "Down.", "Mend it.")), give(Done())]
    operation = make_operation(users.operator)
    toy.run(operation)
    do(services.abort_operation, operation)
    toy.run(operation)
    assert (fresh(operation).state, fresh(operation).finding["code"]) == ("held", "webhook-down")
    do(services.abort_operation, operation)
    assert (fresh(operation).state, fresh(operation).finding) == ("working", {})
    assert toy.advance(operation) == "done"


def test_promote_only_at_a_hold_and_only_for_this_attempt(toy: Toy, users: Any) -> None:
    def hold(context: StepContext) -> Any:
        return Done() if context.promoted("row-3") else AT_HOLD

    toy.plays["toy.one"] = [hold]
    operation = make_operation(users.operator)
    assert code_of(services.promote_operation, operation) == "not-at-a-hold"
    toy.advance(operation)
    assert fresh(operation).waits_for["hold_key"] == "row-3"
    promoted = do(services.promote_operation, operation)
    assert promoted.promoted["by"] == "olga"
    assert code_of(services.promote_operation, operation) == "not-at-a-hold", "it has left the hold"
    assert toy.advance(operation) == "done"
    assert fresh(operation).promoted == {}


def test_promote_needs_a_current_view(toy: Toy, users: Any) -> None:
    toy.plays["toy.one"] = [give(AT_HOLD)]
    operation = make_operation(users.operator)
    toy.advance(operation)
    for seen in (None, timezone.now() - timedelta(seconds=31)):
        Cluster.objects.update(observed_at=seen)
        assert code_of(services.promote_operation, operation) == "view-is-stale"


def test_a_retry_is_a_new_attempt_and_a_resume_is_not(toy: Toy, users: Any) -> None:
    toy.plays["toy.one"] = [give(Hold("gate-red", "Red.", "Wait."))]
    operation = make_operation(users.operator)
    assert code_of(services.resume_operation, operation) == "not-held"
    toy.run(operation)
    do(services.resume_operation, operation)
    toy.run(operation)
    do(services.retry_operation, operation)
    toy.run(operation)
    assert [context.attempt for context in toy.seen] == [1, 1, 2]


def test_stop_freezes_then_resume_goes_on(toy: Toy, users: Any) -> None:
    toy.plays["toy.freeze"] = [give(Done(held=Hold("stopped", "Stopped.", "Resume.")))]
    operation = make_operation(users.operator)
    toy.advance(operation)
    do(services.stop_operation, operation)
    do(services.stop_operation, operation)
    assert toy.run(operation) == ["done", "not-due"]
    assert fresh(operation).finding["code"] == "stopped"
    assert operation.steps.filter(name="toy.freeze").count() == 1
    do(services.resume_operation, operation)
    toy.run(operation)
    assert fresh(operation).state == "succeeded"


def test_verbs_that_a_kind_does_not_know(toy: Toy, users: Any) -> None:
    toy.plays["toy.one"] = [give(Hold("gate-red", "Red.", "Wait."))]
    operation = make_operation(users.operator, stop_step="", adopt_step="")
    assert code_of(services.stop_operation, operation) == "no-such-verb"
    assert code_of(services.adopt_operation, operation) == "nothing-to-adopt"
    toy.advance(operation)
    assert code_of(services.adopt_operation, operation) == "no-such-verb"


def test_adopt_runs_the_step_of_the_kind_before_the_current_one(toy: Toy, users: Any) -> None:
    toy.plays["toy.one"] = [give(Hold("row-off-plan", "Off.", "Adopt.")), give(Done())]
    operation = make_operation(users.operator)
    toy.run(operation)
    do(services.adopt_operation, operation)
    toy.run(operation)
    names = list(operation.steps.order_by("index").values_list("name", flat=True))
    assert names == ["toy.adopt", "toy.one", "toy.two", "toy.end"]
    assert fresh(operation).state == "succeeded"


def test_adopt_raises_our_numbers_above_the_world(toy: Toy, users: Any) -> None:
    cluster = make_cluster(lease_transitions=2)
    ours = next_fence(cluster)
    ahead = ours + 5_000_000
    toy.fence_finding = Hold("database-behind", "Behind.", "Adopt.", facts={"seen": ahead})
    operation = make_operation(users.operator, cluster=cluster)
    toy.run(operation)
    do(services.adopt_operation, operation)
    assert fresh(operation).fence > ahead
    toy.fence_finding = None
    toy.advance(operation)
    assert toy.fenced[0] > ahead
    again = next_fence(cluster)
    toy.fence_finding = Hold("database-behind", "Behind.", "Adopt.", facts={"seen": ours})
    toy.advance(operation)
    do(services.adopt_operation, operation)
    assert next_fence(cluster) > again, "never lowered"


def test_adopt_of_a_lease_that_changed_hands(toy: Toy, users: Any) -> None:
    cluster = make_cluster(lease_transitions=2)
    toy.fence_finding = Hold("database-behind", "Behind.", "Adopt.", facts={"lease_transitions": 4})
    operation = make_operation(users.operator, cluster=cluster)
    toy.run(operation)
    do(services.adopt_operation, operation)
    cluster.refresh_from_db()
    assert cluster.lease_transitions == 4
    assert fresh(operation).fence > 4 * PER_TRANSITION


def test_a_forged_number_is_not_adopted(toy: Toy, users: Any) -> None:
    toy.fence_finding = Hold("database-behind", "Behind.", "Adopt.", facts={"seen": 9 * 10**18})
    operation = make_operation(users.operator, cluster=make_cluster(lease_transitions=1))
    toy.run(operation)
    assert code_of(services.adopt_operation, operation) == "number-not-plausible"


def test_numbers_grow_over_a_takeover(users: Any) -> None:
    cluster = make_cluster(lease_transitions=1)
    numbers = [next_fence(cluster), next_fence(cluster)]
    Cluster.objects.update(lease_transitions=2)
    numbers.append(next_fence(cluster))
    assert numbers == sorted(set(numbers))


def test_a_restore_takes_over_targets_and_memory(toy: Toy, users: Any) -> None:
    old = make_operation(users.operator, targets=["a", "b"], memory={"original": 1, "row": 3})
    toy.advance(old)
    new = services.supersede_operation(
        operation_id=old.pk,
        new=new_operation(old.cluster, ["toy.end"], ["c"], memory={"row": 0}),
        started_by=users.operator,
        actor=ACTOR,
    )
    assert fresh(old).state == "superseded"
    assert not old.steps.filter(state="pending").exists()
    assert sorted(new.targets.filter(released=False).values_list("uid", flat=True)) == ["a", "b", "c"]
    assert not old.targets.filter(released=False).exists()
    assert new.memory == {"original": 1, "row": 0}
    assert toy.advance(old) == "not-due"
    toy.run(new)
    assert fresh(new).state == "succeeded"


def test_a_restore_that_wants_a_taken_target_changes_nothing(users: Any) -> None:
    old = make_operation(users.operator, targets=["a"])
    make_operation(users.operator, targets=["b"])
    with pytest.raises(Refused, match="target-taken"):
        services.supersede_operation(
            operation_id=old.pk,
            new=new_operation(old.cluster, ["toy.end"], ["b"]),
            started_by=users.operator,
            actor=ACTOR,
        )
    assert fresh(old).state == "working"
    assert old.targets.get().released is False


def test_the_superseded_worker_cannot_commit(toy: Toy, users: Any) -> None:
    def overtaken(context: StepContext) -> Any:
        services.supersede_operation(
            operation_id=old.pk,
            new=new_operation(old.cluster, ["toy.end"], []),
            started_by=users.operator,
            actor=ACTOR,
        )
        return Done(append=(PlannedStep("toy.never"),))

    toy.plays["toy.one"] = [overtaken]
    old = make_operation(users.operator)
    assert toy.advance(old) == "overtaken"
    assert not old.steps.filter(name="toy.never").exists()
