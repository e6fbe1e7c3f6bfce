"""Profiles, pickers and deciders."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from deploy.demo.router.books import Books
from deploy.demo.router.config import load_config
from deploy.demo.router.fleet import Endpoint, Fleet, pod_of
from deploy.demo.router.prompts import BadRequest, read_prompt
from deploy.demo.router.router import Router, Scraped
from deploy.demo.router.scheduling import Ask, Decision
from deploy.demo.router.scrape import read_page
from tests.demo.router.cluster import pod

HANDLER = "- {{type: disagg-profile-handler, parameters: {{{}}}}}"
PROFILES = """schedulingProfiles:
- {name: prefill, plugins: [{pluginRef: prefill-filter}, {pluginRef: queue-scorer}, {pluginRef: max-score-picker}]}
- {name: decode, plugins: [{pluginRef: decode-filter}, {pluginRef: queue-scorer}, {pluginRef: max-score-picker}]}
"""
BASE = """plugins:
- {type: prefill-filter}
- {type: decode-filter}
- {type: queue-scorer}
- {type: max-score-picker}
- {name: short, type: prefix-based-pd-decider, parameters: {nonCachedTokens: 16, promptTokens: 8}}
- {name: never, type: prefix-based-pd-decider}
"""


def router(text: str) -> Router:
    """A router of this configuration, without a fleet."""
    return Router(
        load_config(text, allow_experimental=True), Fleet(), Books("p"), Scraped(3.0), rng=Random(7)
    )


def some(*roles: str, **labels: str) -> list[Endpoint]:
    """One endpoint per role, in order."""
    return [
        Endpoint(pod_of(pod(f"pod-{i}", f"127.9.1.{i + 1}", role, "r", **labels)), 0, 8000)
        for i, role in enumerate(roles)
    ]


def decide(one: Router, found: list[Endpoint], tokens: int = 100) -> Decision | None:
    """The decision for a prompt of so many tokens."""
    return one.config.handler.decide(Ask({}, "m", tokens), found, one, one.rng)


@pytest.mark.parametrize(
    ("tokens", "kind"), [(15, "decode-only"), (16, "prefill-decode"), (4000, "prefill-decode")]
)
def test_short_prompts_stay_on_the_decode_endpoint(tokens: int, kind: str) -> None:
    one = router(BASE + HANDLER.format("deciders: {prefill: short}") + "\n" + PROFILES)
    decision = decide(one, some("prefill", "decode"), tokens)
    assert decision is not None
    assert decision.kind == kind
    assert (decision.prefill is not None) == (kind == "prefill-decode")


def test_zero_non_cached_tokens_mean_never() -> None:
    one = router(BASE + HANDLER.format("deciders: {prefill: never}") + "\n" + PROFILES)
    decision = decide(one, some("prefill", "decode"), 10**6)
    assert decision is not None
    assert decision.kind == "decode-only"


def test_a_prefill_profile_that_finds_nothing_leaves_decode_only() -> None:
    one = router(BASE + HANDLER.format("deciders: {prefill: short}") + "\n" + PROFILES)
    decision = decide(one, some("decode"))
    assert decision is not None
    assert (decision.prefill, decision.kind) == (None, "decode-only")
    assert decide(one, some("prefill")) is None


def test_prefill_first_needs_no_decider() -> None:
    one = router(BASE + HANDLER.format("stageOrder: prefill-first") + "\n" + PROFILES)
    decision = decide(one, some("prefill", "decode"), 1)
    assert decision is not None
    assert decision.kind == "prefill-decode"


def test_a_handler_whose_decode_profile_does_not_exist_decides_nothing() -> None:
    one = router(BASE + HANDLER.format("profiles: {decode: other}") + "\n" + PROFILES)
    assert decide(one, some("prefill", "decode")) is None


@pytest.mark.parametrize(
    ("kind", "kept"),
    [
        ("decode-filter", {"decode", "prefill-decode", "both", "encode-prefill-decode"}),
        ("prefill-filter", {"prefill", "encode-prefill", "prefill-decode", "both", "encode-prefill-decode"}),
        ("encode-filter", {"encode", "encode-prefill", "encode-prefill-decode"}),
    ],
)
def test_role_filters(kind: str, kept: set[str]) -> None:
    one = router(f"plugins: [{{type: {kind}}}]\n")
    everything = ["prefill", "decode", "encode", "prefill-decode", "both", "encode-prefill", "nonsense"]
    found = some(*everything, "encode-prefill-decode")
    profile: Any = one.config.handler
    assert {
        e.pod.labels["llm-d.ai/role"] for e in found if profile.profile.filters[0].fits(e.pod.labels)
    } == kept
    assert profile.profile.filters[0].fits({}) == (kind == "decode-filter")


@pytest.mark.parametrize(
    ("entry", "kept"),
    [
        ("{type: by-label, parameters: {label: tier, validValues: [gold]}}", ["gold"]),
        (
            "{type: by-label, parameters: {label: tier, VALIDVALUES: [gold], allowsNoLabel: true}}",
            ["gold", None],
        ),
        ("{type: label-selector-filter, parameters: {matchLabels: {tier: gold}}}", ["gold"]),
        (
            "{type: by-label-selector, parameters: {matchExpressions: [{key: tier, operator: NotIn, values: [gold]}]}}",
            ["tin", None],
        ),
    ],
)
def test_label_filters(entry: str, kept: list[str | None]) -> None:
    profile: Any = router(f"plugins: [{entry}]\n").config.handler
    fits = profile.profile.filters[0].fits
    assert [tier for tier in ("gold", "tin", None) if fits({"tier": tier} if tier else {})] == kept


def test_the_shortest_queue_wins_and_equals_share() -> None:
    one = router("plugins: [{type: queue-scorer}, {type: max-score-picker}]\n")
    found = some("decode", "decode", "decode")
    one.books.at[found[0].address] = 3
    one.books.at[found[1].address] = 1
    one.books.at[found[2].address] = 1
    picked = Counter(decide(one, found).decode.name for _ in range(400))  # type: ignore[union-attr]
    assert set(picked) == {"pod-1-rank-0", "pod-2-rank-0"}
    assert min(picked.values()) > 140  # a fair coin: six standard deviations


def test_random_pickers() -> None:
    found = some("decode", "decode")
    uniform = router("plugins: [{type: queue-scorer}, {type: random-picker}]\n")
    weighted = router("plugins: [{type: queue-scorer}, {type: weighted-random-picker}]\n")
    for one in (uniform, weighted):
        one.books.at[found[0].address] = 4
    drawn = Counter(decide(uniform, found).decode.name for _ in range(400))  # type: ignore[union-attr]
    assert min(drawn.values()) > 140
    drawn = Counter(decide(weighted, found).decode.name for _ in range(50))  # type: ignore[union-attr]
    assert set(drawn) == {"pod-1-rank-0"}  # the other one's score is 0


def test_a_header_can_prefer_a_label() -> None:
    parameters = "{headerName: x-disagg-slice, labelKey: slice}"
    one = router(f"plugins: [{{type: header-label-affinity-scorer, parameters: {parameters}}}]\n")
    here, there = some("decode", slice="0"), some("decode", slice="1")
    for wanted in ("0", "1"):
        ask = Ask({"x-disagg-slice": wanted}, "m", 1)
        decision = one.config.handler.decide(ask, here + there, one, one.rng)
        assert decision is not None
        assert decision.decode.pod.labels["slice"] == wanted


def test_what_a_metrics_page_says() -> None:
    page = (
        b'# HELP vllm:num_requests_waiting x\nvllm:num_requests_waiting{engine="0"} 2.0\n'
        b'vllm:num_requests_waiting{engine="1"} 3.0\nvllm:kv_cache_usage_perc{engine="0"} 0.25\n'
        b'vllm:kv_cache_usage_perc{engine="1"} 0.5\nvllm:num_requests_waiting_by_reason{reason="x"} 9\n'
    )
    assert read_page(page) == (5.0, 0.5)
    assert read_page(b'sglang:num_queue_reqs{m="a"} 4\nsglang:token_usage{m="a"} 1e-1\n') == (4.0, 0.1)
    assert read_page(b"python_info 1\n") is None


ALL_PARSERS = ("openai-parser", "anthropic-parser", "vllmhttp-parser", "passthrough-parser")


@pytest.mark.parametrize(
    ("path", "body", "found"),
    [
        ("/v1/completions", b'{"model": "m", "prompt": "12345678"}', ("m", 2)),
        ("/v1/completions?x=1", b'{"model": "m", "prompt": [1, 2, 3]}', ("m", 3)),
        ("/v1/completions", b'{"model": "m", "prompt": ["1234", "5678"]}', ("m", 2)),
        (
            "/v1/chat/completions",
            b'{"model": "m", "messages": [{"role": "u", "content": "12345678"}]}',
            ("m", 2),
        ),
        (
            "/openai/v1/chat/completions",
            b'{"model": "m", "messages": [{"content": [{"type": "text", "text": "1234"}, {"image_url": {}}]}]}',
            ("m", 1),
        ),
        ("/v1/messages", b'{"model": "m", "system": "1234", "messages": [{"content": "1234"}]}', ("m", 2)),
        ("/inference/v1/generate", b'{"model": "m", "token_ids": [5, 6]}', ("m", 2)),
        ("/v1/embeddings", b'{"model": "m", "input": "1234"}', ("m", 1)),
        ("/v1/responses", b'{"model": "m"}', ("m", 0)),
        ("/tokenize", b"12345678", ("", 2)),
    ],
)
def test_prompts(path: str, body: bytes, found: tuple[str, int]) -> None:
    assert read_prompt(path, body, ALL_PARSERS) == found


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"prompt": "x"}', b'{"model": 3}', b"\xff"])
def test_bodies_that_no_parser_takes(body: bytes) -> None:
    with pytest.raises(BadRequest):
        read_prompt("/v1/completions", body, ALL_PARSERS)
    with pytest.raises(BadRequest):
        read_prompt("/tokenize", body, ("openai-parser",))
