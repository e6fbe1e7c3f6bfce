"""The router as a process, driven over ext_proc against a cluster that changes."""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import grpc
import psutil
import pytest

from deploy.demo.router.config import example_config
from tests.demo.router.cluster import (
    OBJECTIVES,
    OLD_OBJECTIVES,
    PODS,
    POOLS,
    FakeCluster,
    kubeconfig,
    objective,
    pod,
    pool,
    revision_pods,
)
from tests.demo.router.conftest import served_as
from tests.demo.router.driving import (
    RunningRouter,
    answer_body,
    answer_headers,
    ask_body,
    ask_headers,
    body_of,
    running_router,
    until,
)

SHARE = "llm_d_epp_disaggregatedset_revision_gating_share"
NO_MATCH = "llm_d_epp_disaggregatedset_strict_header_no_match_total"
IN_FLIGHT = "llm_d_epp_inflight_requests"


def revision(address: str) -> str:
    """Revision of an address of the fixtures."""
    return {"252": "old", "253": "new"}[address.split(".")[1]]


def drawn(router: RunningRouter, count: int) -> Counter[str]:
    """Revisions that decoded this many requests; each must have prefilled in the same one."""
    found: Counter[str] = Counter()
    for _ in range(count):
        outcome = router.decide()
        assert revision(outcome.destination) == revision(outcome.prefiller)
        assert outcome.stamped["x-disagg-revision"] == revision(outcome.destination)
        found[revision(outcome.destination)] += 1
    return found


@pytest.mark.parametrize(("mode", "share"), [("max-role", 0.2), ("sum", 0.25)])
def test_two_thousand_draws_follow_the_share(
    held: FakeCluster, tmp_path: Path, mode: str, share: float
) -> None:
    config = example_config("qwen").replace("max-role", mode)
    with running_router(tmp_path, kubeconfig(tmp_path, held.port), config=config) as router:
        until(
            "pods are known", lambda: router.metric(SHARE, revision="new", mode=mode) == pytest.approx(share)
        )
        assert router.metric(SHARE, revision="old") == pytest.approx(1 - share)
        new = drawn(router, 2000)["new"]
        # Four standard deviations: one false alarm in sixteen thousand runs.
        assert abs(new - 2000 * share) < 4 * (2000 * share * (1 - share)) ** 0.5
        attempts = "llm_d_epp_scheduler_attempts_total"
        assert (
            router.metric(attempts, endpoint_name="qwen-new-decode-0", status="success", port="8000") == new
        )


def test_a_request_goes_to_decode_and_names_prefill(router: RunningRouter) -> None:
    outcome = router.decide(x_prefiller_host_port="10.0.0.1:1", x_encoder_hosts_ports="10.0.0.2:1")
    assert outcome.status == 200
    assert outcome.destination == outcome.metadata
    assert outcome.destination.split(".")[2] == "2"
    assert outcome.prefiller.split(".")[2] == "1"
    assert outcome.prefiller.endswith(":8000")
    assert "x-encoder-hosts-ports" in outcome.removed
    assert outcome.body == body_of()
    assert outcome.ended
    assert outcome.stamped["x-gateway-destination-endpoint-served"] == outcome.destination
    decisions = router.metric(
        "llm_d_epp_disagg_decision_total", decision_type="prefill-decode", model_name="m"
    )
    assert decisions == router.metric("llm_d_epp_request_total", model_name="m", target_model_name="m")
    assert router.metric("llm_d_epp_request_ttft_seconds_count", streaming="false") == decisions
    assert router.metric("llm_d_epp_request_running") == 0
    assert router.metric(IN_FLIGHT) == 0


def test_a_client_copy_of_the_prefill_header_is_removed_when_nobody_prefills(
    held: FakeCluster, tmp_path: Path
) -> None:
    config = (
        example_config("qwen")
        .replace("- type: always-disagg-pd-decider\n", "- type: prefix-based-pd-decider\n")
        .replace("prefill: always-disagg-pd-decider", "prefill: prefix-based-pd-decider")
    )
    with running_router(tmp_path, kubeconfig(tmp_path, held.port), config=config) as router:
        outcome = until(
            "a decision", lambda: (one := router.decide(x_prefiller_host_port="x:1")).status == 200 and one
        )
        assert outcome.prefiller == ""
        assert "x-prefiller-host-port" in outcome.removed
        assert router.metric("llm_d_epp_disagg_decision_total", decision_type="decode-only") == 1


def test_a_strict_header_pins_and_an_unknown_revision_is_refused(router: RunningRouter) -> None:
    for _ in range(20):
        outcome = router.decide(x_disagg_revision="new")
        assert (revision(outcome.destination), revision(outcome.prefiller)) == ("new", "new")
    assert router.metric(NO_MATCH) is None
    outcome = router.decide(x_disagg_revision="never-seen")
    assert (outcome.status, outcome.reason) == (503, "rejected-no-endpoints")
    assert router.metric(NO_MATCH, selector="revision") == 1
    assert router.metric("llm_d_epp_request_error_total", error_code="ServiceUnavailable") == 1
    assert router.metric("llm_d_epp_scheduler_attempts_total", status="failure") == 1


def test_a_revision_leaves_with_its_last_pod(router: RunningRouter, held: FakeCluster) -> None:
    held.delete(PODS, "qwen-new-decode-0")
    until("new is incomplete", lambda: router.metric(SHARE, revision="new") == 0.0)
    assert router.metric(SHARE, revision="old") == 1.0
    assert drawn(router, 20)["old"] == 20
    assert router.decide(x_disagg_revision="new").status == 503
    held.delete(PODS, "qwen-new-prefill-0")
    until("its series is gone", lambda: router.metric(SHARE, revision="new") is None)


def test_a_pod_that_is_not_ready_gets_nothing(router: RunningRouter, held: FakeCluster) -> None:
    held.put(PODS, pod("qwen-new-prefill-0", "127.253.1.1", "prefill", "new", ready=False))
    until("new is incomplete", lambda: router.metric(SHARE, revision="new") == 0.0)
    assert drawn(router, 20)["old"] == 20
    held.put(PODS, pod("qwen-new-prefill-0", "127.253.1.1", "prefill", "new"))
    until("new is back", lambda: router.metric(SHARE, revision="new") == pytest.approx(0.2))


def test_nothing_is_answered_before_the_first_list_of_pods(held: FakeCluster, tmp_path: Path) -> None:
    held.held.add(PODS)
    with running_router(tmp_path, kubeconfig(tmp_path, held.port)) as router:
        assert (
            router.health() == "SERVING"
        )  # the pool is known, its pods are not: as the llm-d router reports it
        outcome = router.decide()
        assert (outcome.status, outcome.reason) == (503, "rejected-no-endpoints")
        assert router.metric("llm_d_epp_flow_control_requests_total", outcome="RejectedNoEndpoints") == 1
        held.held.clear()
        until("pods are known", lambda: router.decide().status == 200)


def test_it_is_not_serving_without_its_pool(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.put(POOLS, pool("another"))
    for document in revision_pods("old", 1, 1, 252):
        cluster.put(PODS, document)
    with running_router(tmp_path, kubeconfig(tmp_path, cluster.port), serving=False) as router:
        assert router.health("inference-extension") == "NOT_SERVING"
        assert router.health("something-else") == "NOT_FOUND"
        assert router.decide().status == 503
        cluster.put(POOLS, pool())
        until("it serves", lambda: router.health("inference-extension") == "SERVING")
        until("pods are known", lambda: router.decide().status == 200)
        cluster.delete(POOLS, "pool")
        until("it serves no more", lambda: router.health() == "NOT_SERVING")
        assert router.decide().reason == "rejected-no-endpoints"


def test_the_pool_may_change_its_selector_and_ports(router: RunningRouter, held: FakeCluster) -> None:
    held.put(POOLS, pool(port=9100))
    until("the new port", lambda: router.decide().destination.endswith(":9100"))
    held.put(POOLS, pool(app="something-else"))
    until("nothing matches", lambda: router.decide().status == 503)


def test_a_list_is_made_again_when_the_watch_breaks_or_is_too_old(
    router: RunningRouter, held: FakeCluster
) -> None:
    lists = held.lists[PODS]
    held.forget()
    held.cut()  # whatever came before cannot be told any more: 410
    held.delete(PODS, "qwen-new-decode-0")
    until("new is incomplete", lambda: router.metric(SHARE, revision="new") == 0.0)
    assert held.lists[PODS] > lists
    held.cut()
    held.put(PODS, pod("qwen-new-decode-0", "127.253.2.1", "decode", "new"))
    until("new is back", lambda: router.metric(SHARE, revision="new") == pytest.approx(0.2))


def test_objectives_are_live(router: RunningRouter, held: FakeCluster) -> None:
    held.put(OBJECTIVES, objective("vip", -10))
    until(
        "its priority changed", lambda: router.decide(x_llm_d_inference_objective="vip") and negative(router)
    )
    held.put(OBJECTIVES, objective("vip", 100, pool="another"))
    until("it is another pool's", lambda: served_as(router) == "0")
    held.put(OBJECTIVES, objective("vip", 100))
    until("it is ours", lambda: served_as(router) == "100")
    held.delete(OBJECTIVES, "vip")
    until("it is gone", lambda: served_as(router) == "0")
    dispatched = router.metric(
        "llm_d_epp_flow_control_requests_total", outcome="Dispatched", inference_pool="pool"
    )
    assert dispatched == router.metric("llm_d_epp_request_total")


def negative(router: RunningRouter) -> float | None:
    """Requests counted under priority -10."""
    return router.metric("llm_d_epp_flow_control_requests_total", priority="-10", outcome="Dispatched")


def test_older_objectives_count_where_the_cluster_has_no_newer_ones(
    held: FakeCluster, tmp_path: Path
) -> None:
    held.served = {OLD_OBJECTIVES}
    held.put(OLD_OBJECTIVES, objective("vip", 100))
    with running_router(tmp_path, kubeconfig(tmp_path, held.port)) as router:
        until("the objective counts", lambda: served_as(router) == "100")


def test_a_body_without_a_model_is_a_bad_request(router: RunningRouter) -> None:
    counted = router.metric("llm_d_epp_flow_control_requests_total")
    for body in (b'{"prompt": "x"}', b"no json"):
        outcome = router.decide(body)
        assert (outcome.status, outcome.reason) == (400, "")
    assert router.metric("llm_d_epp_request_error_total", error_code="BadRequest") == 2
    assert router.metric("llm_d_epp_flow_control_requests_total") == counted
    assert router.decide(b"anything", path="/tokenize").status == 200


def test_a_request_without_a_body_gets_any_endpoint(router: RunningRouter) -> None:
    requests = router.metric("llm_d_epp_request_total")
    stream = router.stub().Process(
        iter([ask_headers(end=True, path="/v1/models"), answer_headers(), answer_body()])
    )
    kinds = [answer.WhichOneof("response") for answer in stream]
    assert kinds == ["request_headers", "response_headers", "response_body"]
    assert router.metric("llm_d_epp_request_total") == requests
    assert router.metric(IN_FLIGHT) == 0


def test_a_client_that_vanishes_takes_nothing_with_it(router: RunningRouter) -> None:
    """Many streams at once, broken off at every point, by cancelling or by just ending."""

    def one(seed: int) -> None:
        rng = Random(seed)
        messages = [ask_headers(), ask_body(body_of()[:9], end=False), ask_body(body_of()[9:])]
        messages += [answer_headers(), answer_body(b"x", end=False), answer_body(b"y")]
        leave_open = threading.Event()

        def sent():  # type: ignore[no-untyped-def]
            yield from messages[: rng.randint(1, len(messages))]
            if rng.random() < 0.7:
                leave_open.wait(10)

        call = router.stub().Process(sent(), timeout=30)
        try:
            for _ in range(rng.randint(0, 3)):
                threading.Timer(0.2, call.cancel).start()
                next(call)
        except (grpc.RpcError, StopIteration):
            pass
        call.cancel()
        leave_open.set()

    before = psutil.Process(router.process.pid).memory_info().rss
    with ThreadPoolExecutor(16) as pool_of_clients:
        list(pool_of_clients.map(one, range(400)))
    until("nothing is in flight", lambda: router.metric(IN_FLIGHT) == 0)
    assert router.metric("llm_d_epp_request_running") == 0
    assert router.decide().status == 200
    assert router.metric(IN_FLIGHT) == 0
    grown = psutil.Process(router.process.pid).memory_info().rss - before
    assert grown < 32 * 1024 * 1024


def test_in_flight_is_seen_while_it_lasts(router: RunningRouter) -> None:
    going_on = threading.Event()

    def sent():  # type: ignore[no-untyped-def]
        yield ask_headers(x_disagg_revision="new", x_llm_d_inference_fairness_id="acme")
        yield ask_body(body_of())
        going_on.wait(20)

    call = router.stub().Process(sent(), timeout=30)
    next(call)
    labels = {"fairness_id": "acme", "namespace": "serving", "producer_name": "inflight-load-producer"}
    assert router.metric(IN_FLIGHT, endpoint_name="qwen-new-decode-0-rank-0", **labels) == 1
    assert router.metric(IN_FLIGHT, endpoint_name="qwen-new-prefill-0-rank-0", **labels) == 1
    assert router.metric("llm_d_epp_request_running", fairness_id="acme", model_name="m") == 1
    state = json.loads(router.page("/debug/plugins/state"))
    assert state["plugins"]["max-score-picker"]["type"] == "max-score-picker"
    busy = {"endpoint": "serving/qwen-new-decode-0-rank-0", "requests": 1}
    assert busy in state["plugins"]["inflight-load-producer"]["state"]["endpoints"]
    going_on.set()
    until("it is over", lambda: router.metric("llm_d_epp_request_running", fairness_id="acme") == 0)


def test_it_stops_when_its_streams_have_ended(router: RunningRouter) -> None:
    going_on = threading.Event()

    def sent():  # type: ignore[no-untyped-def]
        yield ask_headers()
        yield ask_body(body_of())
        going_on.wait(20)
        yield answer_headers()
        yield answer_body()

    call = router.stub().Process(sent(), timeout=30)
    next(call)
    router.process.send_signal(signal.SIGTERM)
    until("it drains", lambda: router.health() == "NOT_SERVING")
    outcome = router.decide()
    assert (outcome.status, outcome.reason) == (503, "rejected-shutting-down")
    assert router.process.poll() is None
    going_on.set()
    assert [answer.WhichOneof("response") for answer in call][-1] == "response_body"
    assert router.process.wait(10) == 0


def test_a_second_router_on_the_same_port_ends(
    router: RunningRouter, held: FakeCluster, tmp_path: Path
) -> None:
    other = tmp_path / "second"
    other.mkdir()
    ports = [f"--grpc-port={router.port}", f"--grpc-health-port={router.health_port}"]
    with pytest.raises(AssertionError, match="cannot serve"):
        with running_router(other, kubeconfig(other, held.port), *ports):
            pass


def test_it_stays_small(router: RunningRouter) -> None:
    for _ in range(200):
        router.decide()
    assert psutil.Process(router.process.pid).memory_info().rss < 120 * 1024 * 1024
