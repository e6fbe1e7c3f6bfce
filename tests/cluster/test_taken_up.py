"""The hold of a way back is let go only when the controller has been seen to go by the old roles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from controlplane.fleet.connections import connect_cluster
from controlplane.holds.leftover import TAKEN_UP_AFTER
from controlplane.holds.live import ChildCount, LiveSet
from controlplane.operations.contract import StepContext
from controlplane.operations.engine import advance, wake
from controlplane.operations.models import Step
from controlplane.upgrades.steps import back
from deploy.rig import Rig, until
from tests.cluster.driving import Lockstep, install_target, lockstep_on
from tests.cluster.midway import HOLD, Midway, at_first_hold
from workers.steps import STEPS

pytestmark = [pytest.mark.rig, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def midway(rig: Rig, namespace: str, make_set: Callable[..., str]) -> Iterator[Midway]:
    """An upgrade that has just written the old roles back; the controller has drained the new revision."""
    install_target(rig)
    with lockstep_on(rig, environment="production") as lockstep:
        one = at_first_hold(lockstep, namespace, make_set)
        one.verb("abort", reason="test")
        lockstep.until("the look at the way back", lambda: pending(lockstep, one) == "upgrades.reach_back")
        until("the new revision's sets to be gone", lambda: drained(one))
        yield one


def drained(midway: Midway) -> bool:
    """Whether the controller has dropped every set but the old ones; before that, pods may still be ending."""
    return set(midway.lockstep.counts(midway.namespace, "model")) == set(midway.before())


def pending(lockstep: Lockstep, midway: Midway) -> str:
    """The next step's name."""
    wake(operation_id=midway.operation.pk)
    step = Step.objects.filter(operation=midway.operation, state="pending").order_by("index").first()
    return step.name if step else ""


def go(midway: Midway) -> str:
    """One look; what came of it."""
    wake(operation_id=midway.operation.pk)
    return advance(operation_id=midway.operation.pk, steps=STEPS, connect=connect_cluster, owner="test")


def empty_sets_stay(monkeypatch: pytest.MonkeyPatch, midway: Midway) -> None:
    """The look finds the new revision's empty sets, as before the controller has read the set again."""
    key, look = ("0", midway.new, "prefill"), back.look

    def stale(context: StepContext) -> LiveSet:
        live = look(context)
        child = ChildCount(name=f"model-{midway.new}-prefill", wanted=0, ready=0, observed=True, body={})
        return replace(live, children={**live.children, key: child})

    monkeypatch.setattr(back, "look", stale)


def label(midway: Midway) -> str:
    """Whether the parameter holds."""
    return str(midway.client("admin").get(midway.parameter_path)["metadata"]["labels"][HOLD])


def test_empty_sets_of_the_new_revision_are_waited_for(
    midway: Midway, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        empty_sets_stay(patch, midway)
        assert go(midway) == "wait"
        assert (
            "the controller to go by the old roles"
            in midway.lockstep.state(midway.operation).waits_for["what"]
        )
        assert label(midway) == "true"
    midway.ends("aborted")
    assert label(midway) == "released" and midway.counts() == midway.before()


def test_but_not_for_ever(midway: Midway, monkeypatch: pytest.MonkeyPatch) -> None:
    empty_sets_stay(monkeypatch, midway)
    assert go(midway) == "wait"
    step = Step.objects.get(operation=midway.operation, name="upgrades.reach_back", state="pending")
    assert step.first_claimed_at is not None
    step.first_claimed_at -= timedelta(seconds=TAKEN_UP_AFTER)
    step.save()
    assert go(midway) == "done"
