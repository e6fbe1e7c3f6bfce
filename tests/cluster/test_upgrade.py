"""The main job on a real control plane: planned, approved, held, brought to its end or back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from controlplane.audit.models import AuditEvent
from controlplane.upgrades.models import UpdateRecord
from deploy.rig import Rig, workloads
from tests.cluster.driving import Lockstep, install_target, lockstep_on
from tests.cluster.watcher import observing

pytestmark = [pytest.mark.both, pytest.mark.django_db(transaction=True)]
V2 = "registry.example/engine:v2"


@pytest.fixture
def lockstep(rig: Rig) -> Iterator[Lockstep]:
    """A fresh installation beside the rig."""
    install_target(rig)
    with lockstep_on(rig, environment="production") as running:
        yield running


def test_four_and_two_through_two_holds_to_the_end(
    lockstep: Lockstep, namespace: str, make_set: Callable[..., str]
) -> None:
    old = make_set()
    with observing(lockstep.rig.kubeconfig("admin"), namespace, "model") as seen:
        operation = lockstep.upgrade(namespace, "model", image=V2, holds=["first-complete-row"])

        lockstep.reached(operation, "waiting")
        new = lockstep.state(operation).memory["new"]
        assert new != old
        first = {(new, "prefill"): 1, (new, "decode"): 1, (old, "prefill"): 4, (old, "decode"): 2}
        assert lockstep.counts(namespace, "model") == first, "the first hold is the first complete row"
        assert seen.most(new, "prefill") == seen.most(new, "decode") == 1

        assert lockstep.finished(operation) == "succeeded", lockstep.story()

    assert lockstep.counts(namespace, "model") == {(new, "prefill"): 4, (new, "decode"): 2}
    assert workloads.wait_settled(lockstep.rig.client(), namespace, "model") == new
    assert seen.total_peak("prefill") <= 5 and seen.total_peak("decode") <= 3, (
        "never more than target + surge"
    )
    record = UpdateRecord.objects.get(operation=operation)
    assert record.outcome == "succeeded" and record.document["path_evidence"]["state"] == "not examined"
    assert record.document["confirmation"]["images"]["decode"]["engine"]["image"] == V2
    assert (
        AuditEvent.objects.filter(
            target_kind="operation", action="upgrades.write_roles", outcome="done"
        ).count()
        == 1
    )
