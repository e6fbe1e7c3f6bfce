"""The HTTP API, with pods that come and go in a cluster and engines that answer or do not."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from controlplane.metrics.client import Prometheus
from controlplane.metrics.errors import MetricsError
from deploy.demo.metrics.server import MetricSource
from deploy.services import free_port
from tests.demo.gateway.fake_api import FakeApi
from tests.demo.gateway.stage import Stage
from tests.demo.metrics.test_discovery import engine

Doc = dict[str, Any]


class Exporter:
    """A metrics page at an address of its own."""

    def __init__(self, address: str) -> None:
        self.page, self.status, self.address = "x 1\n", 200, address
        self.kind = "text/plain; version=0.0.4; charset=utf-8"
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = exporter.page.encode()
                self.send_response(exporter.status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Content-Type", exporter.kind)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer((address, 0), Handler)
        self.port = self.server.server_port
        threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def stage() -> Iterator[Stage]:
    opened = Stage()
    yield opened
    opened.close()


@pytest.fixture
def cluster(stage: Stage, tmp_path: Path) -> Iterator[FakeApi]:
    api = FakeApi(stage)
    api.page = 10_000
    config = api.kubeconfig() | {"current-context": "fake"}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    yield api
    api.stop()


@pytest.fixture
def exporter(stage: Stage) -> Iterator[Exporter]:
    opened = Exporter(stage.address())
    yield opened
    opened.close()


def get(url: str, path: str, **parameters: str) -> tuple[int, Doc]:
    """Status and document."""
    try:
        with urllib.request.urlopen(f"{url}{path}?{urlencode(parameters)}", timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def values(url: str, query: str) -> list[tuple[Doc, float]]:
    """The series of an instant query."""
    status, document = get(url, "/api/v1/query", query=query)
    assert status == 200, document
    return [(one["metric"], float(one["value"][1])) for one in document["data"]["result"]]


def until(what: str, look: Callable[[], Any], limit_s: float = 15.0) -> Any:
    end = time.monotonic() + limit_s
    while not (found := look()):
        assert time.monotonic() < end, f"not seen within {limit_s} s: {what}"
        time.sleep(0.02)
    return found


def recipe(port: int) -> list[Doc]:
    """One job: the pods of a set, ten times a second."""
    meta = "__meta_kubernetes_pod_"
    return [
        {
            "job_name": "engines",
            "scrape_interval": "100ms",
            "scrape_timeout": "100ms",
            "kubernetes_sd_configs": [{"role": "pod"}],
            "relabel_configs": [
                {"source_labels": [f"{meta}ip"], "target_label": "__address__", "replacement": f"$1:{port}"},
                {"source_labels": [f"{meta}name"], "target_label": "pod"},
            ],
        }
    ]


def test_pods_come_fail_and_go(cluster: FakeApi, exporter: Exporter, tmp_path: Path) -> None:
    document = {**engine("p0", address=exporter.address), "kind": "Pod"}
    with MetricSource(recipe(exporter.port), kubeconfig=tmp_path / "kubeconfig") as source:
        assert values(source.url, "up") == []
        cluster.put(document)
        until("the pod to be scraped", lambda: values(source.url, 'x{pod="p0"} == 1'))
        exporter.page = "x 5\n# TYPE y gauge\n# HELP y Why.\ny 2\n"
        until("its new value", lambda: values(source.url, 'x{pod="p0"} == 5'))
        assert get(source.url, "/api/v1/metadata", metric="y")[1]["data"] == {
            "y": [{"type": "gauge", "help": "Why.", "unit": ""}]
        }
        (target,) = get(source.url, "/api/v1/targets")[1]["data"]["activeTargets"]
        assert (target["health"], target["labels"]["pod"]) == ("up", "p0")
        assert target["scrapeUrl"] == f"http://{exporter.address}:{exporter.port}/metrics"

        exporter.status = 503
        until("it to be down", lambda: values(source.url, "up == 0"))
        assert values(source.url, "x") == [], "nothing is known of it"
        (target,) = get(source.url, "/api/v1/targets")[1]["data"]["activeTargets"]
        assert target["health"] == "down" and "503" in target["lastError"]
        exporter.status = 200
        until("it to be up again", lambda: values(source.url, "x"))

        cluster.delete("Pod", "llm", "p0")
        until("it to be forgotten", lambda: not values(source.url, "up") and not values(source.url, "x"))
        assert values(source.url, "count_over_time(x[1m])"), "but not its past"


def test_a_cluster_that_is_away_takes_no_target_away(
    cluster: FakeApi, exporter: Exporter, tmp_path: Path
) -> None:
    cluster.put({**engine("p0", address=exporter.address), "kind": "Pod"})
    with MetricSource(recipe(exporter.port), kubeconfig=tmp_path / "kubeconfig") as source:
        until("the pod to be scraped", lambda: values(source.url, "x"))
        cluster.stop()
        exporter.page = "x 7\n"
        until("scrapes to go on", lambda: values(source.url, "x == 7"))
        cluster.start()
        cluster.put({**engine("p1", address=exporter.address), "kind": "Pod"})
        until("the cluster to be followed again", lambda: len(values(source.url, "x")) == 2)


# --- answers


@pytest.fixture(scope="module")
def loaded() -> Iterator[MetricSource]:
    with MetricSource() as source:
        times = [1_700_000_000_000 + 1000 * number for number in range(100)]
        source.load(
            [
                (
                    {"__name__": "a_total", "n": n},
                    [(at, float(number * 2)) for number, at in enumerate(times)],
                )
                for n in ("1", "2")
            ]
        )
        yield source


AT = "1700000050"


def test_answers_are_written_as_prometheus_writes_them(loaded: MetricSource) -> None:
    status, document = get(loaded.url, "/api/v1/query", query='a_total{n="1"}', time=AT)
    assert (status, document) == (
        200,
        {
            "status": "success",
            "data": {
                "resultType": "vector",
                "result": [{"metric": {"__name__": "a_total", "n": "1"}, "value": [1700000050, "100"]}],
            },
        },
    )
    shown = get(loaded.url, "/api/v1/query", query='a_total{n="1"}[2s]', time=AT)[1]["data"]
    assert shown["resultType"] == "matrix"
    assert shown["result"][0]["values"] == [[1700000049, "98"], [1700000050, "100"]]
    shown = get(
        loaded.url, "/api/v1/query_range", query="time() * 2", start=AT, end="1700000051", step="0.5"
    )[1]["data"]
    assert [value for _, value in shown["result"][0]["values"]] == ["3400000100", "3400000101", "3400000102"]
    numbers = {
        "1e-7": "1e-07",
        "0.00001": "0.00001",
        "1e20": "100000000000000000000",
        "1e21": "1e+21",
        "0 / 0": "NaN",
    }
    for text, wanted in {**numbers, "-1 / 0": "-Inf", "0.1 + 0.2": "0.30000000000000004"}.items():
        assert get(loaded.url, "/api/v1/query", query=text)[1]["data"]["result"][1] == wanted, text


def test_what_series_there_are(loaded: MetricSource) -> None:
    def data(path: str, **parameters: str) -> Any:
        return get(loaded.url, f"/api/v1/{path}", **parameters)[1]["data"]

    both = [{"__name__": "a_total", "n": n} for n in ("1", "2")]
    assert data("series", **{"match[]": "a_total"}) == both
    assert data("series", **{"match[]": '{n=~"2|3"}'}) == both[1:]
    assert data("series", **{"match[]": "a_total"}, start="1700000100", end="1700000200") == []
    assert data("labels") == ["__name__", "n"] and data("label/n/values") == ["1", "2"]
    assert data("status/buildinfo")["version"] and data("targets")["activeTargets"] == []


@pytest.mark.parametrize(
    ("path", "parameters", "status", "kind"),
    [
        ("query", {"query": "a_total{"}, 400, "bad_data"),
        ("query", {}, 400, "bad_data"),
        ("query", {"query": "abs(a_total)"}, 400, "bad_data"),
        ("query", {"query": "a_total", "time": "noon"}, 400, "bad_data"),
        ("query", {"query": "a_total", "timeout": "-1"}, 400, "bad_data"),
        ("query", {"query": "a_total * on () a_total", "time": AT}, 422, "execution"),
        ("query_range", {"query": "a_total", "start": "1", "end": "0", "step": "1"}, 400, "bad_data"),
        ("query_range", {"query": "a_total", "start": "0", "end": "1", "step": "0"}, 400, "bad_data"),
        ("query_range", {"query": "a_total", "start": "0", "end": "20000", "step": "1"}, 400, "bad_data"),
        ("query_range", {"query": "a_total[1m]", "start": "0", "end": "1", "step": "1"}, 400, "bad_data"),
        ("series", {}, 400, "bad_data"),
        ("series", {"match[]": "sum(a_total)"}, 400, "bad_data"),
        (
            "query_range",
            {"query": "a_total", "start": "0", "end": "1e4", "step": "1", "timeout": "1ms"},
            503,
            "timeout",
        ),
    ],
)
def test_bad_questions(loaded: MetricSource, path: str, parameters: Doc, status: int, kind: str) -> None:
    found, document = get(loaded.url, f"/api/v1/{path}", **parameters)
    assert (found, document["status"], document["errorType"]) == (status, "error", kind)
    assert document["error"]


def test_the_products_own_client_reads_it(loaded: MetricSource) -> None:
    with Prometheus(loaded.url, timeout_s=5) as client:
        assert abs(client.now() - time.time()) < 5
        answer = client.instant('sum by (n) (increase(a_total{n="1"}[10s]))', float(AT))
        assert [(one.labels, one.value) for one in answer.series] == [({"n": "1"}, pytest.approx(20.0))]
        assert (
            len(client.range("a_total", start=float(AT), end=float(AT) + 9, step_s=1).series[0].samples) == 10
        )
        with pytest.raises(MetricsError) as refused:
            client.instant("nonsense(")
        assert refused.value.code == "metrics-query-refused"


def test_it_starts_as_a_program_and_ends_when_told(
    cluster: FakeApi, exporter: Exporter, tmp_path: Path
) -> None:
    cluster.put({**engine("p0", address=exporter.address), "kind": "Pod"})
    recipe_file = tmp_path / "recipe.yaml"
    recipe_file.write_text(yaml.safe_dump({"scrape_configs": recipe(exporter.port)}))
    port = free_port()
    argv = [sys.executable, "-m", "deploy.demo.metrics", "--port", str(port), "--recipe", str(recipe_file)]
    process = subprocess.Popen([*argv, "--kubeconfig", str(tmp_path / "kubeconfig"), "--interval", "0.2"])
    try:

        def ready() -> bool:
            assert process.poll() is None
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=2) as answer:
                    return bool(answer.status == 200)
            except OSError:
                return False

        until("it to be ready", ready)
        until("the pod to be scraped", lambda: values(f"http://127.0.0.1:{port}", 'x{pod="p0"}'))
        (target,) = get(f"http://127.0.0.1:{port}", "/api/v1/targets")[1]["data"]["activeTargets"]
        assert target["scrapeInterval"] == "0.2s"
        process.terminate()
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait(10)


def test_a_recipe_that_is_not_understood_does_not_start() -> None:
    with pytest.raises(ValueError, match="honor_labels"):
        MetricSource([{"job_name": "x", "honor_labels": True}]).start()
