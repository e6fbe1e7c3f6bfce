"""What Lockstep rests on about routers, asserted on the one that we play and, where somebody has it, on llm-d's own.

The facts are those that were recorded of the llm-d router (main of 2026-08-22) behind a real Envoy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
import urllib3

from deploy.demo.engines.roles import engine_pair
from deploy.demo.path import ServedPath, router_program
from deploy.demo.router.manifests import inference_objective
from deploy.rig import NodePool, PodProgram, Rig, until, workloads
from deploy.rig.programs import repository

pytestmark = pytest.mark.rig

OURS = "lockstep"
LLM_D = "ghcr.io/llm-d/llm-d-router-endpoint-picker:rig"
HEADER = "x-disagg-revision"
SHARE = "llm_d_epp_disaggregatedset_revision_gating_share"
ROUTERS = [
    pytest.param(OURS, id="router=lockstep"),
    pytest.param("llm-d", id="router=llm-d", marks=pytest.mark.llm_d_router),
]


def programs(router: str) -> list[PodProgram]:
    """What runs for the router's image."""
    if router == OURS:
        return [router_program()]
    ports = {9002: "--grpc-port", 9003: "--grpc-health-port", 9090: "--metrics-port"}
    argv = (os.environ["LOCKSTEP_ROUTER_BIN"],)
    return [PodProgram(repository(LLM_D), argv, ports, "grpc-health:9003:inference-extension")]


@pytest.fixture(scope="module", params=ROUTERS)
def half_way(request: pytest.FixtureRequest) -> Iterator[tuple[ServedPath, str, str]]:
    """A served set stopped where a hold stops it: old 4 prefill + 2 decode beside new 1 + 1; (path, old, new)."""
    with Rig(nodes=NodePool(count=6), programs=programs(request.param), path_crds=True) as rig:
        namespace = workloads.make_namespace(rig.client(), "facts")
        with ServedPath(rig, namespace) as path:
            image = {} if request.param == OURS else {"image": LLM_D}
            old = path.serve("chat", engine_pair(), router=image)
            new = beside(rig, namespace)
            until(
                "both revisions drawn",
                lambda: set(shares(path)) >= {old, new} and min(shares(path).values()) > 0,
            )
            yield path, old, new


def beside(rig: Rig, namespace: str) -> str:
    """One prefill and one decode group that carry the set's name and another revision, as a held rollout has them."""
    new = "bbbbbbbb"
    for role in engine_pair(1, 1):
        template = role["spec"]["leaderWorkerTemplate"]["workerTemplate"]
        labels = {
            **template["metadata"]["labels"],
            "disaggregatedset.x-k8s.io/name": "chat",
            "disaggregatedset.x-k8s.io/role": role["name"],
            "disaggregatedset.x-k8s.io/revision": new,
            "leaderworkerset.sigs.k8s.io/worker-index": "0",
        }
        rig.client().create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"chat-{new}-{role['name']}-0",
                    "namespace": namespace,
                    "labels": labels,
                },
                "spec": template["spec"],
            }
        )
    return new


def metrics(path: ServedPath) -> list[str]:
    """The router's samples."""
    pods = workloads.pods_of(path.rig.client(), path.namespace, "llm-d-router-gateway=chat-epp")
    page = urllib3.request(
        "GET", f"http://{pods[0]['status']['podIP']}:9090/metrics", timeout=5
    ).data.decode()
    return [line for line in page.splitlines() if not line.startswith("#")]


def value(path: ServedPath, name: str, **labels: str) -> float:
    """The sum of a series over what is not named."""
    found = 0.0
    for line in metrics(path):
        series, _, number = line.rpartition(" ")
        if series.partition("{")[0] == name and all(
            f'{key}="{text}"' in series for key, text in labels.items()
        ):
            found += float(number)
    return found


def shares(path: ServedPath) -> dict[str, float]:
    """The gating share by revision."""
    found = {}
    for line in metrics(path):
        if line.startswith(SHARE + "{"):
            label = re.search(r'revision="([^"]*)"', line)
            found[label[1] if label else ""] = float(line.rpartition(" ")[2])
    return found


Half = tuple[ServedPath, str, str]


def test_the_share_is_that_of_the_role_with_most_pods(half_way: Half) -> None:
    path, old, new = half_way
    assert {key: round(share, 3) for key, share in shares(path).items()} == {old: 0.8, new: 0.2}


def test_unpinned_requests_follow_the_share_and_never_mix(half_way: Half) -> None:
    path, old, new = half_way
    path.reset_books()
    stamps = [path.ask(f"request {number}")[2][HEADER] for number in range(300)]
    assert set(stamps) == {old, new}
    assert 30 <= stamps.count(new) <= 93, "0.2 of 300 within 4.7 standard deviations"
    books = path.books()
    assert books["mixed"]["all"] == 0 and books["prefill_legs"] == 300
    assert value(path, "llm_d_epp_disagg_decision_total", decision_type="prefill-decode") >= 300


def test_a_pinned_request_is_served_and_stamped_by_its_revision(half_way: Half) -> None:
    path, _, new = half_way
    answers = [path.ask(f"pinned {number}", probe=True, headers={HEADER: new}) for number in range(5)]
    assert [(status, headers[HEADER]) for status, _, headers in answers] == [(200, new)] * 5


def test_an_unknown_revision_is_refused_with_its_reason_and_counted(half_way: Half) -> None:
    path, _, _ = half_way
    counter = "llm_d_epp_disaggregatedset_strict_header_no_match_total"
    before = value(path, counter)
    status, _, headers = path.ask("nobody", probe=True, headers={HEADER: "deadbeef"})
    assert (status, headers["x-llm-d-request-dropped-reason"]) == (503, "rejected-no-endpoints")
    until("it is counted", lambda: value(path, counter) == before + 1)


def test_an_objective_gives_its_priority(half_way: Half) -> None:
    path, _, _ = half_way
    path.rig.apply(inference_objective("paid", path.namespace, "chat", 100))
    counted: dict[str, Any] = {"priority": "100"}

    def served() -> bool:
        path.ask("for money", probe=True, headers={"x-llm-d-inference-objective": "paid"})
        return value(path, "llm_d_epp_flow_control_requests_total", **counted) > 0

    until("a request in its band", served)


def test_a_revision_that_loses_a_role_gets_nothing(half_way: Half) -> None:
    path, old, new = half_way
    client = path.rig.client()
    workloads.set_pods_ready(client, path.namespace, f"disaggregatedset.x-k8s.io/revision={new}", ready=False)
    try:
        until("the share to be gone", lambda: shares(path).get(new, 0.0) == 0.0)
        assert {path.ask(f"after {number}")[2][HEADER] for number in range(20)} == {old}
        assert path.ask("pinned", probe=True, headers={HEADER: new})[0] == 503
    finally:
        workloads.set_pods_ready(
            client, path.namespace, f"disaggregatedset.x-k8s.io/revision={new}", ready=True
        )
