"""The main job on a real control plane: planned, approved, held, brought to its end or back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from deploy.rig import Rig, workloads
from tests.cluster.driving import Lockstep, install_target, lockstep_on

pytestmark = [pytest.mark.rig, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def lockstep(rig: Rig) -> Iterator[Lockstep]:
    """A fresh installation beside the rig."""
    install_target(rig)
    with lockstep_on(rig) as running:
        yield running


def test_four_and_two_through_two_holds_to_the_end(
    lockstep: Lockstep, namespace: str, make_set: Callable[..., str]
) -> None:
    old = make_set()
    operation = lockstep.upgrade(namespace, "model", image="registry.example/engine:v2", holds=["first-complete-row"])
    outcome = lockstep.finished(operation)
    assert outcome == "succeeded", lockstep.story()
    new = operation.memory["new"]
    assert new != old
    assert lockstep.counts(namespace, "model") == {(new, "prefill"): 4, (new, "decode"): 2}
    assert workloads.wait_settled(lockstep.rig.client(), namespace, "model") == new
