"""What the rig's own tests say about sets, pods and faults, said of the emulator: the very same tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from deploy.demo.emulator.controllers.rig import EmulatedRig
from deploy.demo.emulator.controllers.settings import Settings, Times
from deploy.rig import NodePool, workloads
from tests.cluster import test_rig as on_the_rig

_numbers = itertools.count(1)
# The others are about processes, folders and the build of a real control plane.
for _name in (
    "test_a_set_of_four_and_two_becomes_ready",
    "test_image_ids_follow_the_image",
    "test_groups_larger_than_one_pod",
    "test_never_ready",
    "test_a_tag_called_latest_is_not_late",
    "test_late_by_the_image_tag",
    "test_flicker",
    "test_crash_counts_restarts",
    "test_an_image_that_cannot_be_pulled",
    "test_pods_can_take_their_time_to_end",
    "test_readiness_can_be_flipped",
    "test_gpus_run_out",
    "test_the_real_webhook_refuses_a_partition",
    "test_rights_are_real",
    "test_who_writes_leader_worker_sets",
    "test_webhooks_down_and_up",
):
    globals()[_name] = getattr(on_the_rig, _name)


@pytest.fixture(scope="module")
def rig() -> Iterator[EmulatedRig]:
    """In place of a rig."""
    with EmulatedRig(nodes=NodePool(count=12), settings=Settings(times=Times(requeue_s=0.1))) as running:
        yield running


@pytest.fixture
def namespace(rig: EmulatedRig) -> Iterator[str]:
    """A namespace of the test's own, gone afterwards."""
    name = workloads.make_namespace(rig.client(), f"test-{next(_numbers)}")
    yield name
    rig.client().delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def make_set(rig: EmulatedRig, namespace: str) -> Callable[..., str]:
    """As the rig's."""

    def make(name: str = "model", *, wait: bool = True, **options: Any) -> str:
        rig.client().create(workloads.disaggregated_set(name, namespace, **options))
        return workloads.wait_settled(rig.client(), namespace, name) if wait else ""

    return make
