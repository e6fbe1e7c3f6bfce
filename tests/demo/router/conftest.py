"""A fake cluster with two revisions at a hold, and a router process that follows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.demo.router.cluster import (
    OBJECTIVES,
    PODS,
    POOLS,
    FakeCluster,
    fake_cluster,
    kubeconfig,
    objective,
    pool,
    revision_pods,
)
from tests.demo.router.driving import RunningRouter, running_router, until


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A fake API server with nothing in it."""
    with fake_cluster() as found:
        yield found


@pytest.fixture
def held(cluster: FakeCluster) -> FakeCluster:
    """A pool whose set stands at a hold: old 4 prefill + 2 decode, new 1 + 1, and an objective."""
    for document in revision_pods("old", 4, 2, 252) + revision_pods("new", 1, 1, 253):
        cluster.put(PODS, document)
    cluster.put(POOLS, pool())
    cluster.put(OBJECTIVES, objective("vip", 100))
    return cluster


@pytest.fixture
def router(held: FakeCluster, tmp_path: Path) -> Iterator[RunningRouter]:
    """A router with the example configuration that knows all of it."""
    with running_router(tmp_path, kubeconfig(tmp_path, held.port)) as found:
        until("the objective counts", lambda: served_as(found) == "100")
        yield found


def served_as(router: RunningRouter) -> str | None:
    """The priority that a request with the objective "vip" is counted under."""
    before = router.metric("llm_d_epp_request_total", priority="100") or 0.0
    if router.decide(x_llm_d_inference_objective="vip").status != 200:
        return None
    return "100" if (router.metric("llm_d_epp_request_total", priority="100") or 0.0) > before else "0"
