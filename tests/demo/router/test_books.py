"""What is under way is given back exactly once, whatever messages come and wherever the stream breaks off."""

from __future__ import annotations

from random import Random

import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.demo.router.books import LABEL_VALUES, Books
from deploy.demo.router.config import example_config, load_config
from deploy.demo.router.exchange import Exchange, Unanswerable
from deploy.demo.router.fleet import Fleet, objective_of, pod_of, pool_of
from deploy.demo.router.router import Router, Scraped
from tests.demo.router.cluster import objective, pod, pool, revision_pods
from tests.demo.router.driving import (
    Outcome,
    answer_body,
    answer_headers,
    ask_body,
    ask_headers,
    body_of,
    headers,
)

CONFIG = load_config(example_config("qwen"), allow_experimental=True)


def some_router(**revisions: tuple[int, int]) -> Router:
    """A router over these revisions, no process and no cluster."""
    fleet = Fleet()
    fleet.set_pool(pool_of(pool()))
    documents = [
        one
        for net, (name, (prefill, decode)) in enumerate(revisions.items())
        for one in revision_pods(name, prefill, decode, 252 + net)
    ]
    fleet.set_pods(pod_of(one) for one in documents)
    return Router(CONFIG, fleet, Books("pool"), Scraped(3.0), rng=Random(5))


def in_flight(router: Router) -> tuple[int, int, int]:
    """Totals of the three books."""
    books = router.books
    return sum(books.in_flight.values()), sum(books.at.values()), sum(books.running.values())


MESSAGES = {
    "headers": ask_headers(),
    "headers only": ask_headers(end=True),
    "part": ask_body(b'{"model": "m", '),
    "whole": ask_body(body_of()),
    "rest": ask_body(b'"prompt": "x"}'),
    "trailers": ext_proc.ProcessingRequest(request_trailers=ext_proc.HttpTrailers()),
    "answer": answer_headers(),
    "empty answer": answer_headers("204", end=True),
    "piece": answer_body(b"x", end=False),
    "last": answer_body(b"x"),
    "answer trailers": ext_proc.ProcessingRequest(response_trailers=ext_proc.HttpTrailers()),
}
STREAMS = st.lists(st.lists(st.sampled_from(sorted(MESSAGES)), max_size=8), max_size=6)


@settings(max_examples=400)
@given(STREAMS, st.data())
def test_no_order_of_messages_leaks(streams: list[list[str]], data: st.DataObject) -> None:
    router = some_router(old=(2, 2), new=(1, 1))
    open_streams = [(Exchange(router), names) for names in streams]
    while open_streams:
        exchange, names = data.draw(st.sampled_from(open_streams))
        going_on = bool(names) and not exchange.over
        if going_on:
            try:
                exchange.take(MESSAGES[names.pop(0)])
            except Unanswerable:
                going_on = False
        if not going_on:
            exchange.close()
            exchange.close()
            open_streams.remove((exchange, names))
        assert min(in_flight(router)) >= 0
    assert in_flight(router) == (0, 0, 0)
    assert all(count >= 0 for count in router.books.in_flight.values())


def test_both_endpoints_are_busy_and_prefill_is_free_at_the_first_piece() -> None:
    router = some_router(old=(1, 1))
    exchange = Exchange(router)
    for name in ("headers", "whole", "answer"):
        exchange.take(MESSAGES[name])
    assert in_flight(router) == (2, 2, 1)
    exchange.take(MESSAGES["piece"])
    assert in_flight(router) == (1, 1, 1)
    assert router.books.at == {"127.252.2.1:8000": 1}
    exchange.take(MESSAGES["last"])
    assert in_flight(router) == (0, 0, 0)


def test_a_body_in_pieces_goes_back_as_it_came() -> None:
    router, outcome = some_router(old=(1, 1)), Outcome()
    body = body_of(prompt="ä" * 100_000)
    exchange = Exchange(router)
    exchange.take(ask_headers())
    pieces = [body[start : start + 50_000] for start in range(0, len(body), 50_000)]
    for piece in pieces:
        assert exchange.take(ask_body(piece, end=False)) == []
    answers = exchange.take(ask_body(b""))
    for answer in answers:
        outcome.take(answer)
    assert outcome.body == body
    assert outcome.ended
    ends = [one.request_body.response.body_mutation.streamed_response.end_of_stream for one in answers[1:]]
    assert ends == [False] * (len(ends) - 1) + [True]


def test_trailers_end_a_body_and_are_answered_last() -> None:
    exchange = Exchange(some_router(old=(1, 1)))
    exchange.take(ask_headers())
    exchange.take(ask_body(body_of(), end=False))
    answers = exchange.take(MESSAGES["trailers"])
    kinds = [answer.WhichOneof("response") for answer in answers]
    assert kinds == ["request_headers", "request_body", "request_trailers"]
    assert not answers[1].request_body.response.body_mutation.streamed_response.end_of_stream
    exchange.take(MESSAGES["answer"])
    exchange.take(MESSAGES["piece"])
    (answer,) = exchange.take(MESSAGES["answer trailers"])
    assert answer.WhichOneof("response") == "response_trailers"
    assert in_flight(exchange._router) == (0, 0, 0)


def test_a_streamed_answer_passes_piece_by_piece() -> None:
    exchange = Exchange(some_router(old=(1, 1)))
    exchange.take(ask_headers())
    exchange.take(ask_body(body_of()))
    exchange.take(answer_headers(content_type="text/event-stream"))
    seen = b""
    for piece in (b"data: 1\n\n", b"data: 2\n\n"):
        (answer,) = exchange.take(answer_body(piece, end=False))
        seen += answer.response_body.response.body_mutation.streamed_response.body
    assert seen == b"data: 1\n\ndata: 2\n\n"
    (last,) = exchange.take(answer_body(b""))
    assert last.response_body.response.body_mutation.streamed_response.end_of_stream
    ttft = exchange._router.books.ttft.labels("m", "m", "default-flow", "0", "true")
    assert ttft._sum.get() > 0


def test_who_served_is_what_the_proxy_says() -> None:
    exchange = Exchange(some_router(old=(1, 1), new=(1, 1)))
    exchange.take(ask_headers(x_disagg_revision="old"))
    exchange.take(ask_body(body_of()))
    message = answer_headers()
    fields = message.metadata_context.filter_metadata["envoy.lb"].fields
    fields["x-gateway-destination-endpoint-served"].string_value = "127.253.2.1:8000"
    outcome = Outcome()
    for answer in exchange.take(message):
        outcome.take(answer)
    assert outcome.stamped["x-disagg-revision"] == "new"
    assert outcome.stamped["x-gateway-destination-endpoint-served"] == "127.253.2.1:8000"


def test_a_gateway_that_does_not_stream_bodies_is_told_so() -> None:
    message = ask_headers()
    message.protocol_config.request_body_mode = 2  # BUFFERED
    with pytest.raises(Unanswerable, match="FULL_DUPLEX_STREAMED"):
        Exchange(some_router(old=(1, 1))).take(message)


def test_series_of_endpoints_that_are_gone_go_with_their_last_request() -> None:
    router = some_router(old=(1, 1))
    exchange = Exchange(router)
    exchange.take(ask_headers())
    exchange.take(ask_body(body_of()))
    router.fleet.set_pods([])

    def shown() -> set[str]:
        return {
            sample.labels["endpoint_name"]
            for family in router.books.collect()
            for sample in family.samples
            if sample.name == "llm_d_epp_inflight_requests"
        }

    assert shown() == {"qwen-old-decode-0-rank-0", "qwen-old-prefill-0-rank-0"}
    exchange.close()
    assert shown() == set()


def test_many_tenants_share_one_label() -> None:
    books = Books("pool")
    names = [books.flow("m", f"tenant-{i}", 0).fairness for i in range(LABEL_VALUES + 5)]
    assert names[-5:] == ["other"] * 5
    assert books.flow("m", "tenant-3", 0).fairness == "tenant-3"
    assert books.flow("m", "", 0).fairness == "other"  # past the cap also the default


def test_header_names_are_read_in_any_case() -> None:
    router = some_router(old=(1, 1), new=(1, 1))
    router.fleet.objectives = {"vip": 100}
    exchange = Exchange(router)
    message = ask_headers()
    message.request_headers.headers.MergeFrom(headers(**{"X_Disagg_Revision": "new"}))
    message.request_headers.headers.MergeFrom(headers(**{"X_Gateway_Inference_Objective": "vip"}))
    exchange.take(message)
    outcome = Outcome()
    for answer in exchange.take(ask_body(body_of())):
        outcome.take(answer)
    assert outcome.destination == "127.253.2.1:8000"
    assert router.books.requests.labels("m", "m", "default-flow", "100")._value.get() == 1


def test_an_empty_new_objective_header_wins_over_the_old_one() -> None:
    router = some_router(old=(1, 1))
    router.fleet.objectives = {"vip": 100}
    exchange = Exchange(router)
    exchange.take(ask_headers(x_llm_d_inference_objective="", x_gateway_inference_objective="vip"))
    exchange.take(ask_body(body_of()))
    assert router.books.requests.labels("m", "m", "default-flow", "0")._value.get() == 1


def test_which_objectives_are_ours() -> None:
    assert objective_of(objective("a", 5), "pool") == ("a", 5)
    assert objective_of(objective("a", None), "pool") == ("a", 0)
    assert objective_of(objective("a", 5, pool="other"), "pool") is None
    assert objective_of(objective("a", 5, group="example.com"), "pool") is None


def test_endpoints_are_ports_of_ready_pods() -> None:
    fleet = Fleet()
    document = pool()
    document["spec"]["targetPorts"] = [{"number": 8000}, {"number": 8001}]
    fleet.set_pool(pool_of(document))
    narrowed = pod("b", "127.9.1.2", "decode", "r")
    narrowed["metadata"]["annotations"] = {"llm-d.ai/active-ports": "8001"}
    starting = pod("c", "127.9.1.3", "decode", "r", ready=False)
    homeless = pod("d", "", "decode", "r")
    foreign = pod("e", "127.9.1.4", "decode", "r", app="other")
    assert fleet.endpoints() == ()
    listed = [pod("a", "127.9.1.1", "decode", "r"), narrowed, starting, homeless, foreign]
    fleet.set_pods(pod_of(one) for one in listed)
    assert [(e.name, e.address) for e in fleet.endpoints()] == [
        ("a-rank-0", "127.9.1.1:8000"),
        ("a-rank-1", "127.9.1.1:8001"),
        ("b-rank-1", "127.9.1.2:8001"),
    ]
    assert fleet.at("127.9.1.2:8001") is not None
    fleet.drop_pod("b")
    assert fleet.at("127.9.1.2:8001") is None


@pytest.mark.parametrize(
    ("found", "reason"),
    [("name: decode, plugins: [{pluginRef: decode-filter}]", "rejected-saturated"), ("name: other", "")],
)
def test_nothing_left_to_pick_is_429(found: str, reason: str) -> None:
    text = f"""plugins:
- {{type: decode-filter}}
- {{type: disagg-profile-handler}}
schedulingProfiles:
- {{{found}}}
- {{name: prefill}}
"""
    router = some_router(old=(1, 0))
    exchange = Exchange(Router(load_config(text), router.fleet, Books("pool"), Scraped(3.0)))
    exchange.take(ask_headers())
    outcome = Outcome()
    for answer in exchange.take(ask_body(body_of())):
        outcome.take(answer)
    assert (outcome.status, outcome.reason) == (429, reason)
