"""Prometheus on the rig finds engines and routers by itself and says whose series are whose."""

from __future__ import annotations

import http.server
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlencode

import pytest
import urllib3

from deploy.rig import Rig, until
from deploy.rig.build import available
from deploy.rig.workloads import NAME_LABEL, REVISION_LABEL, ROLE_LABEL, pods_of, role

pytestmark = pytest.mark.rig

Doc = dict[str, Any]


@contextmanager
def serving(address: str, port: int, text: str) -> Iterator[None]:
    """A server of one page of metrics."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer((address, port), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def prometheus(rig: Rig) -> Iterator[str]:
    """The URL of a Prometheus with the default recipe."""
    if not available(["prometheus"])[0]:
        if os.environ.get("LOCKSTEP_REQUIRE_RIG", "") in {"1", "true"}:
            pytest.fail("LOCKSTEP_REQUIRE_RIG is set, but there is no Prometheus", pytrace=False)
        pytest.skip("NO PROMETHEUS")
    yield rig.start_prometheus()
    rig.stop_part("prometheus")


def query(url: str, expression: str) -> list[tuple[Doc, float]]:
    """The series of an instant query with their values."""
    answer = urllib3.request("GET", f"{url}/api/v1/query?{urlencode({'query': expression})}", timeout=5)
    return [(each["metric"], float(each["value"][1])) for each in json.loads(answer.data)["data"]["result"]]


def test_engines_by_role_and_revision(
    rig: Rig, namespace: str, make_set: Callable[..., str], prometheus: str
) -> None:
    revision = make_set(roles=[role("prefill", 2, size=2), role("decode", 1)])
    pods = pods_of(rig.client(), namespace, f"{NAME_LABEL}=model")
    leaders = [p for p in pods if p["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/worker-index"] == "0"]
    assert (len(pods), len(leaders)) == (5, 3)
    with ExitStack() as stack:
        for pod in leaders:
            running = 5 if pod["metadata"]["labels"][ROLE_LABEL] == "decode" else 2
            text = f'vllm:num_requests_running{{engine="0",model_name="m"}} {running}\n'
            stack.enter_context(serving(pod["status"]["podIP"], 8000, text))
        mine = f'vllm:num_requests_running{{namespace="{namespace}"}}'
        until("all engines scraped", lambda: len(query(prometheus, mine)) == 3)
        sums = query(prometheus, f"sum by (set, slice, role, revision) ({mine})")
        labels = {"set": "model", "slice": "0", "revision": revision}
        assert (labels | {"role": "prefill"}, 4.0) in sums and (labels | {"role": "decode"}, 5.0) in sums
        assert len(sums) == 2 and revision == leaders[0]["metadata"]["labels"][REVISION_LABEL]
        # Workers that serve no metrics are no targets that are down.
        assert query(prometheus, f'count(up{{namespace="{namespace}"}})')[0][1] == 3
        names = {(labels["pod"], labels["node"]) for labels, _ in query(prometheus, mine)}
        assert names == {(pod["metadata"]["name"], pod["spec"]["nodeName"]) for pod in leaders}


def test_routers_by_their_metrics_port(rig: Rig, namespace: str, prometheus: str) -> None:
    container = {"name": "epp", "image": "registry.example/router:v1"}
    ports = [{"containerPort": 9002}, {"containerPort": 9090}]
    rig.client().create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "router", "namespace": namespace},
            "spec": {"containers": [{**container, "ports": ports}]},
        }
    )
    path = f"/api/v1/namespaces/{namespace}/pods/router"
    address = until("an address", lambda: rig.client().get(path)["status"].get("podIP"))
    with serving(address, 9090, "llm_d_epp_ready_endpoints 6\n"):
        found = until(
            "scraped", lambda: query(prometheus, f'llm_d_epp_ready_endpoints{{namespace="{namespace}"}}')
        )
    assert [(labels["job"], labels["pod"], value) for labels, value in found] == [("routers", "router", 6.0)]


def test_a_recipe_of_ones_own_finds_the_rig(rig: Rig, namespace: str, make_set: Callable[..., str]) -> None:
    """Service discovery that names no API server, as a recipe for a real cluster does not, is led to this one."""
    make_set(roles=[role("prefill", 1), role("decode", 1)])
    recipe = {
        "job_name": "own",
        "scrape_interval": "1s",
        "kubernetes_sd_configs": [{"role": "pod", "namespaces": {"names": [namespace]}}],
        "relabel_configs": [
            {
                "source_labels": ["__meta_kubernetes_pod_ip"],
                "target_label": "__address__",
                "replacement": "$1:8000",
            }
        ],
    }
    url = rig.start_prometheus([recipe])
    try:
        until("two targets", lambda: [count for _, count in query(url, 'count(up{job="own"})')] == [2.0])
        assert rig.gone() is None and "level=ERROR" not in rig.log("prometheus")
    finally:
        rig.stop_part("prometheus")
    assert "prometheus" not in rig.pids()
