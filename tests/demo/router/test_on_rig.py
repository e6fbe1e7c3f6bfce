"""The router as a pod of a real control plane, with its own account, through a rollout of the set behind it."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as ext_proc_grpc

from deploy.demo.router.config import example_config
from deploy.demo.router.manifests import IMAGE, epp_name, inference_objective, router_objects
from deploy.rig import NodePool, PodProgram, Rig, service_account, until, workloads
from deploy.rig.build import available
from deploy.rig.programs import repository
from deploy.rig.workloads import is_ready
from tests.demo.router.driving import (
    Outcome,
    RunningRouter,
    answer_body,
    answer_headers,
    ask_body,
    ask_headers,
    body_of,
)

pytestmark = pytest.mark.rig

NAMESPACE, SET, RELEASE = "serving", "qwen", "qwen"
SHARE = "llm_d_epp_disaggregatedset_revision_gating_share"


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    """A rig that runs our router for its image and serves the objects of the request path."""
    there, reason = available(["path-crds"])
    if not there:
        if os.environ.get("LOCKSTEP_REQUIRE_RIG", "") in {"1", "true"}:
            pytest.fail(f"LOCKSTEP_REQUIRE_RIG is set, but there is no rig: {reason}", pytrace=False)
        pytest.skip(f"NO RIG: {reason}")
    program = PodProgram(repository(IMAGE), (sys.executable, "-m", "deploy.demo.router"))
    account = service_account("router", NAMESPACE, epp_name(RELEASE))
    with Rig(
        nodes=NodePool(count=4, gpus=8), programs=[program], identities=[account], path_crds=True
    ) as running:
        workloads.make_namespace(running.client(), NAMESPACE)
        yield running


def roles(image: str = "registry.example/engine:v1") -> list[dict[str, Any]]:
    """4 prefill and 2 decode groups, labelled as routers want it."""
    return [
        workloads.role(name, count, image=image, labels={"llm-d.ai/role": name})
        for name, count in (("prefill", 4), ("decode", 2))
    ]


def router_pods(rig: Rig) -> list[dict[str, Any]]:
    """Pods of the router."""
    selector = f"llm-d-router-gateway={epp_name(RELEASE)}"
    return workloads.pods_of(rig.client(), NAMESPACE, selector)


def ready_router(rig: Rig, config_map: str) -> str:
    """The address of the one Ready router pod that mounts this ConfigMap."""

    def look() -> str:
        found = [pod for pod in router_pods(rig) if is_ready(pod)]
        mounted = [pod["spec"]["volumes"][0]["configMap"]["name"] for pod in found]
        return found[0]["status"]["podIP"] if mounted == [config_map] else ""

    return until(f"a router with {config_map} is Ready", look, limit_s=60)


class Driven:
    """Requests to a router at an address."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(f"{address}:9002")
        self.pages = RunningRouter(None, 9002, 9003, 9090, Path(), address)  # type: ignore[arg-type]

    def decide(self, **headers: str) -> Outcome:
        """One whole request."""
        outcome = Outcome()
        messages = [ask_headers(**headers), ask_body(body_of()), answer_headers(), answer_body()]
        for answer in ext_proc_grpc.ExternalProcessorStub(self.channel).Process(iter(messages), timeout=20):  # type: ignore[no-untyped-call]
            outcome.take(answer)
        return outcome


def revisions(rig: Rig) -> dict[str, str]:
    """Revision by pod address."""
    pods = workloads.pods_of(rig.client(), NAMESPACE, f"{workloads.NAME_LABEL}={SET}")
    return {
        pod["status"]["podIP"]: pod["metadata"]["labels"][workloads.REVISION_LABEL]
        for pod in pods
        if "podIP" in pod.get("status", {})
    }


def test_a_pod_of_the_rig_routes_through_a_rollout_and_a_push(rig: Rig) -> None:
    client = rig.client()
    client.create(workloads.disaggregated_set(SET, NAMESPACE, roles()))
    old = workloads.wait_settled(client, NAMESPACE, SET)
    objects = router_objects(release=RELEASE, namespace=NAMESPACE, set_name=SET)
    client.apply(objects)
    first = next(doc["metadata"]["name"] for doc in objects if doc["kind"] == "ConfigMap")
    driven = Driven(ready_router(rig, first))
    until("pods are known", lambda: driven.decide().status == 200)
    assert driven.pages.metric(SHARE, revision=old) == 1.0
    client.apply(inference_objective("vip", NAMESPACE, RELEASE, 100))
    until(
        "the objective counts",
        lambda: (
            driven.decide(x_llm_d_inference_objective="vip").status == 200
            and driven.pages.metric("llm_d_epp_flow_control_requests_total", priority="100")
        ),
    )

    changed = workloads.disaggregated_set(SET, NAMESPACE, roles("registry.example/engine:v2"))
    client.apply(changed)
    known: dict[str, str] = revisions(rig)
    served: Counter[str] = Counter()
    new = ""
    end = time.monotonic() + 90
    while not new or served[new] < 5:
        assert time.monotonic() < end, served
        known |= revisions(rig)
        outcome = driven.decide()
        assert outcome.status == 200, outcome
        decode = outcome.destination.partition(":")[0]
        stamped = outcome.stamped["x-disagg-revision"]
        prefill = outcome.prefiller.partition(":")[0]
        known |= {} if {decode, prefill} <= known.keys() else revisions(rig)
        assert known[decode] == known[prefill] == stamped
        served[stamped] += 1
        new = next((label for label in known.values() if label != old), "")
    assert workloads.wait_settled(client, NAMESPACE, SET) == new
    until("the old revision is gone", lambda: driven.pages.metric(SHARE, revision=old) is None)
    assert driven.pages.metric(SHARE, revision=new) == 1.0
    assert driven.decide(x_disagg_revision=old).status == 503

    pushed = router_objects(
        release=RELEASE,
        namespace=NAMESPACE,
        set_name=SET,
        config=example_config(SET).replace("max-role", "sum"),
    )
    client.apply(pushed)
    second = next(doc["metadata"]["name"] for doc in pushed if doc["kind"] == "ConfigMap")
    assert second != first
    again = Driven(ready_router(rig, second))
    until("pods are known", lambda: again.decide().status == 200)
    assert again.pages.metric(SHARE, revision=new, mode="sum") == 1.0


def test_a_configuration_that_cannot_be_read_never_becomes_ready(rig: Rig) -> None:
    client = rig.client()
    broken = example_config(SET).replace("flowControl:\n", "flowcontrol:\n")
    client.apply(router_objects(release="broken", namespace=NAMESPACE, set_name=SET, config=broken))

    def crashed() -> dict[str, Any] | None:
        selector = f"llm-d-router-gateway={epp_name('broken')}"
        for pod in workloads.pods_of(client, NAMESPACE, selector):
            for status in pod.get("status", {}).get("containerStatuses", []):
                ended = status.get("lastState", {}).get("terminated") or status["state"].get("terminated")
                if ended:
                    assert ended["exitCode"] == 1
                    assert not is_ready(pod)
                    return pod
        return None

    pod = until("it ended", crashed, limit_s=60)
    assert 'unknown field \\"flowcontrol\\"' in rig.program_log(pod)
    client.delete(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{epp_name('broken')}")
