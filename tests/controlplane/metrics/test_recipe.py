"""The shipped scrape recipe: a real Prometheus follows it, given pods as Kubernetes' discovery tells them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.metrics.asked import Incarnation
from controlplane.metrics.client import Prometheus
from controlplane.metrics.measured import SINCE_START, Measured, State
from controlplane.metrics.reading import clock_offset, measure_all
from controlplane.metrics.source import Source
from deploy.rig.build import binary
from tests.controlplane.kube.fake_api import wait_until
from tests.controlplane.metrics.real import RealPrometheus

RECIPE = Path(__file__).resolve().parents[3] / "deploy" / "target" / "scrape.yaml"
META = "__meta_kubernetes_pod"
SET = f"{META}_label_disaggregatedset_x_k8s_io_"
WORKER = f"{META}_label_leaderworkerset_sigs_k8s_io_worker_index"
# Loopback addresses that the rig gives to no pod.
ADDRESSES = iter(f"127.77.0.{number}" for number in range(1, 250))


class Exporter:
    """A pod's metrics page, as a test writes it."""

    def __init__(self, port: int = 8000) -> None:
        self.address, self.port = "", port
        self.page = ""
        self.scrapes = 0
        self.closed = False

    def __enter__(self) -> Exporter:
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                exporter.scrapes += 1
                body = exporter.page.encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self.server = self._bound(Handler)
        threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()
        return self

    def _bound(self, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
        while True:
            self.address = next(ADDRESSES)
            try:
                return ThreadingHTTPServer((self.address, self.port), handler)
            except OSError:
                continue  # another run on this machine has it

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Answer no more."""
        if not self.closed:
            self.closed = True
            self.server.shutdown()
            self.server.server_close()


class Cluster:
    """Pods in files that Prometheus' discovery reads, under the labels that discovery of pods would give."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "pods.json"
        self.pods: dict[str, dict[str, Any]] = {}
        self.file.write_text("[]")

    def add(self, pod: str, exporter: Exporter, *, port: str = "", number: str = "", **labels: str) -> None:
        """A pod with one container; `port` and `number` name what it declares."""
        address = f"{exporter.address}:{number}" if number else exporter.address
        meta = {
            "__meta_kubernetes_namespace": "llm",
            f"{META}_name": pod,
            f"{META}_ip": exporter.address,
            f"{META}_phase": "Running",
        }
        if number:
            meta |= {f"{META}_container_port_name": port, f"{META}_container_port_number": number}
        self.pods[f"{pod}:{number}"] = {"targets": [address], "labels": meta | labels}

    def engine(self, pod: str, role: str, exporter: Exporter, **more: str) -> None:
        """A leader pod of the set `chat`."""
        named = {f"{SET}name": "chat", f"{SET}role": role, f"{SET}revision": "aaaa1111", WORKER: "0"}
        self.add(pod, exporter, **(named | more))

    def write(self) -> None:
        """Tell Prometheus."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps(list(self.pods.values())))
        fresh.replace(self.file)


def recipe(cluster: Cluster) -> list[dict[str, Any]]:
    """The recipe's jobs as they are, but for where pods come from and how often they are scraped."""
    jobs: list[dict[str, Any]] = next(iter(yaml.safe_load_all(RECIPE.read_text())))["scrape_configs"]
    for job in jobs:
        assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]
        job["file_sd_configs"] = [{"files": [str(cluster.file)], "refresh_interval": "1s"}]
        job |= {"scrape_interval": "250ms", "scrape_timeout": "250ms"}
    return jobs


@dataclass
class World:
    """Everything that the tests look at, scraped by one Prometheus: it takes five seconds to hear of a pod."""

    server: RealPrometheus
    client: Prometheus
    pods: dict[str, Exporter]
    began: float


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("recipe")
    cluster = Cluster(folder)
    with ExitStack() as stack:
        names = ("plain", "sliced", "worker", "other", "pending", "young", "stops")
        pods = {name: stack.enter_context(Exporter()) for name in names}
        pods["declared"] = stack.enter_context(Exporter(port=8200))
        pods |= {name: stack.enter_context(Exporter(port=9090)) for name in ("router", "stranger")}
        for exporter in pods.values():
            exporter.page = page(1)
        pods["router"].page = "llm_d_epp_info 1\n"
        pods["young"].page = page(2, nixl_num_kv_expired_reqs_total=5)
        pods["stops"].page = page(3)
        cluster.engine("plain", "prefill", pods["plain"])
        cluster.engine("sliced", "decode", pods["sliced"], **{f"{SET}slice": "1"})
        cluster.engine("declared", "decode", pods["declared"], port="modelserver", number="8200")
        cluster.engine("declared", "decode", pods["declared"], port="nixl", number="5600")
        cluster.engine("worker", "decode", pods["worker"], **{WORKER: "1"})
        cluster.engine("pending", "decode", pods["pending"], **{f"{META}_phase": "Pending"})
        cluster.engine("sidecar", "decode", pods["other"], **{f"{META}_container_init": "true"})
        cluster.add("no-set", pods["other"], **{WORKER: "0"})
        mark = {f"{META}_labelpresent_llm_d_router_gateway": "true"}
        cluster.add("chat-epp-7d9f-abcde", pods["router"], port="metrics", number="9090", **mark)
        cluster.add("chat-epp-7d9f-abcde", pods["router"], port="grpc", number="9002", **mark)
        cluster.add("stranger", pods["stranger"], port="metrics", number="9090")
        cluster.engine("young", "prefill", pods["young"], **{f"{SET}name": "young"})
        cluster.engine("stops", "decode", pods["stops"], **{f"{SET}name": "stops"})
        six = Exporter()
        six.address = "fd00::12ab"
        cluster.engine("six", "decode", six, **{f"{SET}name": "six"})
        cluster.write()
        began = time.time()
        server = stack.enter_context(RealPrometheus(binary("prometheus"), folder, recipe(cluster)))
        client = stack.enter_context(Prometheus(server.url, timeout_s=5))
        wait_until("every target was scraped", lambda: _healths(server).count("up") == 6, limit=20)
        yield World(server, client, pods, began)


def page(running: int, **counters: float) -> str:
    """A metrics page of an engine."""
    lines = [f'vllm:num_requests_running{{engine="0",model_name="m"}} {running}']
    lines += [f'vllm:{name}{{engine="0",model_name="m"}} {value}' for name, value in counters.items()]
    return "\n".join(lines) + "\n"


def ask(world: World, name: str, set_name: str) -> list[Measured]:
    revisions = [Incarnation("aaaa1111", world.began)]
    place = {"namespace": "llm", "set": set_name, "window_s": 60}
    return measure_all(world.client, Source(), [name], revisions=revisions, **place)


@pytest.mark.rig
def test_who_is_scraped_and_under_which_labels(world: World) -> None:
    found = {target["labels"]["pod"]: target["labels"] for target in world.server.targets()}
    assert set(found) == {"plain", "sliced", "declared", "chat-epp-7d9f-abcde", "young", "stops", "six"}
    assert found["plain"] == {
        "job": "lockstep-engines",
        "instance": f"{world.pods['plain'].address}:8000",
        "namespace": "llm",
        "pod": "plain",
        "set": "chat",
        "role": "prefill",
        "revision": "aaaa1111",
        "slice": "0",
    }
    assert found["sliced"]["slice"] == "1"
    assert found["declared"]["instance"] == f"{world.pods['declared'].address}:8200"
    assert found["chat-epp-7d9f-abcde"] == {
        "job": "lockstep-routers",
        "instance": f"{world.pods['router'].address}:9090",
        "namespace": "llm",
        "pod": "chat-epp-7d9f-abcde",
    }
    assert not any(world.pods[name].scrapes for name in ("worker", "pending", "other", "stranger"))


@pytest.mark.rig
def test_an_address_without_a_port_may_be_of_either_kind(world: World) -> None:
    (six,) = (target for target in world.server.targets() if target["labels"]["pod"] == "six")
    assert six["labels"]["instance"] == "[fd00::12ab]:8000"


@pytest.mark.rig
def test_what_a_young_pod_counted_before_its_first_scrape_is_in_the_number(world: World) -> None:
    (seen,) = ask(world, "expired_leases", "young")
    assert (seen.state, seen.value, SINCE_START in seen.notes) == (State.VALUE, 5, True)
    increase = 'sum(increase(vllm:nixl_num_kv_expired_reqs_total{set="young"}[1m]))'
    everybody_else = wait_until("two scrapes", lambda: world.client.instant(increase).series)
    assert everybody_else[0].value == 0


@pytest.mark.rig
def test_a_pod_that_stops_to_answer_is_no_data_at_once(world: World) -> None:
    (seen,) = ask(world, "requests_running", "stops")
    assert (seen.state, seen.value, seen.role) == (State.VALUE, 3, "decode")
    assert seen.age_s is not None and 0 <= seen.age_s < 2
    assert [(one.labels or {})["pod"] for one in ask(world, "freshness", "stops")] == ["stops"]
    world.pods["stops"].close()
    (gone,) = wait_until(
        "its scrapes fail",
        lambda: [one for one in ask(world, "requests_running", "stops") if one.state is State.NO_DATA],
    )
    assert gone.value is None


@pytest.mark.rig
def test_the_sources_clock_is_ours_here(world: World) -> None:
    offset = clock_offset(world.client)
    assert abs(offset.offset_s) <= offset.uncertainty_s + 0.01


def test_the_operators_documents_take_over_the_same_labels() -> None:
    plain, engines, routers = yaml.safe_load_all(RECIPE.read_text())
    assert {document["kind"] for document in (engines, routers)} == {"PodMonitor"}
    ours = {
        rule["target_label"]: (rule.get("source_labels"), rule.get("regex"), rule.get("replacement"))
        for rule in plain["scrape_configs"][0]["relabel_configs"]
        if rule.get("target_label") not in (None, "__address__")
    }
    theirs = {
        rule["targetLabel"]: (rule.get("sourceLabels"), rule.get("regex"), rule.get("replacement"))
        for rule in engines["spec"]["podMetricsEndpoints"][0]["relabelings"]
    }
    by_the_operator = {"namespace", "pod"}
    assert ours.keys() - by_the_operator == theirs.keys()
    assert all(ours[label] == rule for label, rule in theirs.items())
    assert set(Source().labels.values()) == ours.keys()


def _healths(server: RealPrometheus) -> list[str]:
    return [target["health"] for target in server.targets()]
