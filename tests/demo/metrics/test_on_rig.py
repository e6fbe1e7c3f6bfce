"""The pods of a real control plane: a real Prometheus and ours find the same targets under the same labels."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from deploy.demo.metrics.server import MetricSource
from deploy.rig import NodePool, Rig, RigUnavailable, workloads
from deploy.rig.prometheus import default_scrape_configs
from deploy.rig.workloads import role
from tests.demo.metrics.test_api import get, until

pytestmark = pytest.mark.rig
Found = list[tuple[list[tuple[str, str]], list[tuple[str, str]], str]]


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    try:
        running = Rig(nodes=NodePool(count=4)).start()
    except RigUnavailable as missing:
        if os.environ.get("LOCKSTEP_REQUIRE_RIG", "") in {"1", "true"}:
            pytest.fail(f"LOCKSTEP_REQUIRE_RIG is set, but there is no rig: {missing.reason}", pytrace=False)
        pytest.skip(f"NO RIG: {missing.reason}")
    with running:
        yield running


def targets(url: str) -> Found:
    """Labels, what discovery told of Kubernetes, and the address, of all active targets."""
    active = get(url, "/api/v1/targets", state="active")[1]["data"]["activeTargets"]
    return sorted(
        (
            sorted(one["labels"].items()),
            sorted((key, text) for key, text in one["discoveredLabels"].items() if "kubernetes" in key),
            one["scrapeUrl"],
        )
        for one in active
    )


def test_discovery_tells_the_same_of_every_pod(rig: Rig) -> None:
    client = rig.client()
    namespace = workloads.make_namespace(client, "metrics")
    client.create(
        workloads.disaggregated_set("model", namespace, [role("prefill", 2, size=2), role("decode", 1)])
    )
    ports = [{"containerPort": 9002}, {"containerPort": 9090}]
    router = {"name": "epp", "image": "registry.example/router:v1", "ports": ports}
    metadata = {"name": "router", "namespace": namespace, "annotations": {"note.example/x": "1"}}
    client.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [router]}})
    workloads.wait_settled(client, namespace, "model", limit_s=120)
    real = rig.start_prometheus()
    with MetricSource(default_scrape_configs(), kubeconfig=rig.kubeconfig("prometheus")) as ours:
        wanted = until("all of them", lambda: found if len(found := targets(real)) == 4 else None, limit_s=60)
        until("ours to tell the same", lambda: targets(ours.url) == wanted, limit_s=30)
    rig.stop_part("prometheus")
