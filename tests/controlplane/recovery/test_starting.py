"""Starting a restore: rights, sign-in, confirmation, votes, what it takes over, and what stays paused."""

from __future__ import annotations

import inspect
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from hypothesis import given
from hypothesis import strategies as st

from controlplane.approvals.models import ChangeRequest
from controlplane.errors import BadInput, NotAllowed, Refused
from controlplane.operations.clock import database_now
from controlplane.operations.contract import PlannedStep
from controlplane.operations.creation import NewOperation, Target, create_operation
from controlplane.operations.models import Operation, OperationTarget
from controlplane.operations.pauses import automation_paused, pause_automation, resume_automation
from controlplane.recovery.models import Combination, Restore
from controlplane.recovery.ordering import ending_steps, restore_steps
from controlplane.recovery.parts.registry import PARTS as REGISTERED
from controlplane.recovery.restores import request_restore, start_restore
from policy.recovery.order import PARTS, Part
from tests.conftest import Cast
from tests.controlplane.recovery.given import ACTOR, make_cluster, stored
from workers.steps import RUNS, STEPS

Json = dict[str, Any]


def start(found: Combination, user: Any, **more: Any) -> Restore:
    """A start as a person makes it."""
    given: Json = {
        "version": found.version,
        "reason": "it was better before",
        "confirm": "chat",
        "options": {},
        "signed_in_at": database_now(),
        **more,
    }
    return start_restore(combination_id=found.pk, user=user, actor=ACTOR, **given)


def running(found: Combination, user: Any, *targets: Target, **memory: Any) -> Operation:
    """An upgrade of the set that stands at a hold."""
    return create_operation(
        new=NewOperation(
            kind="upgrade",
            subject_id="1",
            digest="sha256:1",
            cluster=found.cluster,
            namespace=found.namespace,
            title="An upgrade",
            reason="",
            targets=targets or [Target("set", found.uid)],
            steps=[PlannedStep("upgrades.hold")],
            abort_step="upgrades.plan_abort",
            memory=memory,
        ),
        started_by=user,
        actor=ACTOR,
    )


@pytest.mark.django_db
def test_a_verified_one_starts_at_once_and_owes_a_review(users: Cast) -> None:
    found = stored(make_cluster(environment="production"))
    restore = start(found, users.operator)
    operation = restore.operation
    assert [step.name for step in operation.steps.order_by("index")] == [
        "recovery.check",
        *(step.name for step in ending_steps()),
    ]
    taken = {(one.kind, one.uid) for one in operation.targets.all()}
    assert taken == {
        ("set", "uid-1"), ("router", "deployment-1"), ("objectives", "pool-1"), ("route", "route-1")
    }  # fmt: skip
    review = ChangeRequest.objects.get(pk=restore.review_id)
    assert (review.state, review.subject_kind, review.requester) == (
        "open",
        "recovery.review",
        users.operator,
    )
    assert timedelta(hours=23) < review.expires_at - database_now() <= timedelta(hours=24)
    assert automation_paused(cluster=found.cluster, namespace="serving", name="chat")


@pytest.mark.django_db
def test_right_sign_in_and_name_are_asked_for(users: Cast) -> None:
    found = stored(make_cluster())
    for user in (users.viewer, users.approver, users.admin):
        with pytest.raises(NotAllowed, match="not-allowed"):
            start(found, user)
    for at in (None, database_now() - timedelta(minutes=16), database_now() + timedelta(minutes=5)):
        with pytest.raises(NotAllowed, match="sign-in-too-old"):
            start(found, users.operator, signed_in_at=at)
    with pytest.raises(BadInput, match="confirmation-wrong"):
        start(found, users.operator, confirm="front ")
    assert not Operation.objects.exists() and not Restore.objects.exists()
    start(found, users.operator, confirm="front")


@pytest.mark.django_db
@pytest.mark.parametrize("state", ["candidate", "revoked"])
def test_what_is_not_verified_needs_an_approval_of_exactly_this(users: Cast, state: str) -> None:
    found = stored(make_cluster(), verified=False)
    Combination.objects.filter(pk=found.pk).update(state=state)
    found.refresh_from_db()
    with pytest.raises(Refused, match="not-approved"):
        start(found, users.operator)


@pytest.mark.django_db
def test_an_environment_may_ask_for_one_vote_on_verified_ones_too(
    users: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "LOCKSTEP_RESTORE_VOTES", frozenset({"production"}))
    with pytest.raises(Refused, match="not-approved"):
        start(stored(make_cluster(environment="production")), users.operator)
    found = stored(make_cluster("south", environment="staging"))
    asked: Json = {"version": found.version, "reason": "r", "options": {}, "origin": None, "actor": ACTOR}
    with pytest.raises(Refused, match="no-vote-needed"):
        request_restore(combination_id=found.pk, user=users.operator, **asked)
    start(found, users.operator)


@pytest.mark.django_db
def test_a_cluster_that_is_not_ours_is_refused(users: Cast) -> None:
    with pytest.raises(Refused, match="cluster-read-only"):
        start(stored(make_cluster(writes="foreign")), users.operator)


@pytest.mark.django_db
def test_it_takes_the_place_of_what_runs_on_the_set(users: Cast) -> None:
    found = stored(make_cluster())
    hold: Json = {"at": (database_now() + timedelta(hours=1)).isoformat(), "reason": "its hold is over"}
    old = running(
        found, users.operator, Target("set", found.uid), Target("scaler", "s"),
        holding=True, box={"floors": [], "ceilings": []}, scalers={"s": {"kind": "x"}}, expires=hold,
    )  # fmt: skip
    restore = start(found, users.operator)
    old.refresh_from_db()
    assert (old.state, restore.superseded_id) == ("superseded", old.pk)
    memory = restore.operation.memory
    assert memory["scalers"] == {"s": {"kind": "x"}}, "what was paused is inherited"
    assert memory["inherits"] == f"U-{old.pk}" and memory["holding"] is True
    assert memory["box"] is None and memory["expires"] == {}, "its own hold, and no end of the old one"
    free = OperationTarget.objects.filter(released=False).exclude(operation=restore.operation)
    assert not free.exists()
    assert restore.operation.targets.filter(kind="scaler", uid="s").exists()


@pytest.mark.django_db
def test_a_router_that_another_operation_has_taken_refuses_all_of_it(users: Cast) -> None:
    found = stored(make_cluster())
    other = running(found, users.operator, Target("router", "deployment-1"))
    upgrade = running(found, users.operator)
    with pytest.raises(Refused, match="target-taken"):
        start(found, users.operator)
    other.refresh_from_db()
    upgrade.refresh_from_db()
    assert (other.state, upgrade.state) == ("working", "working")
    assert automation_paused(cluster=found.cluster, namespace="serving", name="chat") is None


@pytest.mark.django_db
def test_a_pause_stands_once_and_until_a_person_ends_it(users: Cast) -> None:
    where: Json = {"cluster": make_cluster(), "namespace": "serving", "name": "chat"}
    first = pause_automation(**where, reason="a restore", actor=ACTOR)
    assert pause_automation(**where, reason="another", actor=ACTOR).pk == first.pk
    assert "a restore" in str(automation_paused(**where))
    assert automation_paused(**{**where, "name": "other"}) is None
    with pytest.raises(NotAllowed):
        resume_automation(pause_id=first.pk, version=1, reason="", user=users.viewer, actor=ACTOR)
    resume_automation(pause_id=first.pk, version=1, reason="seen", user=users.operator, actor=ACTOR)
    assert automation_paused(**where) is None
    with pytest.raises(Refused, match="already-resumed"):
        resume_automation(pause_id=first.pk, version=2, reason="", user=users.operator, actor=ACTOR)
    assert pause_automation(**where, reason="again", actor=ACTOR).pk != first.pk


WAYS = st.sampled_from(["back", "anew"])


@given(st.lists(st.sampled_from(PARTS), unique=True), WAYS)
def test_every_step_is_registered_and_takes_its_arguments(names: list[Any], way: Any) -> None:
    parts = [Part(name, "because", ("x",), way if name == "workload" else "") for name in names]
    steps = [*restore_steps(parts), *ending_steps()]
    for step in steps:
        definition = STEPS[step.name]
        if step.name in REGISTERED:
            part, writes = REGISTERED[step.name]
            args = {key: value for key, value in step.args.items() if key != "ends_part"}
            inspect.signature(part).bind(None, **args)
            assert definition.writes == writes
    ends = [step.args["ends_part"] for step in steps if "ends_part" in step.args]
    assert sorted(ends) == list(range(len(parts))), "each part is ended by one step"
    found = [step.name for step in steps]
    if "workload" in names:
        assert found.index("holds.pause_scalers") < found.index("recovery.open_hold")
    assert found.count("recovery.release") == 1
    assert found.index("recovery.release") < found.index("holds.give_back_scalers")
    if "scalers" in names:
        assert found.index("recovery.put_scalers") > found.index("holds.give_back_scalers")


def test_runs_are_registered() -> None:
    assert {"recovery.capture_now", "recovery.compare", "recovery.plan_restore"} <= set(RUNS)
