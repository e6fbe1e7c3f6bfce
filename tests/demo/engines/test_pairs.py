"""Prefill and decode engines together: what may be read, what is refused, and what the metrics show of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.demo.engines.cluster import PROMPT, cluster, moved, pair, pod

NO_KV = {"connector": ""}
Options = dict[str, Any]


def test_kv_of_a_prefill_engine_is_read_and_the_right_columns_move() -> None:
    async def scenario() -> None:
        async with cluster(*pair({}, {})) as c:
            alone = await c.text("p", PROMPT)
            status, answer = await c.ask("d", PROMPT, via="p")
            assert status == 200 and answer["choices"][0]["text"] == alone
            decode, prefill = await c.metrics("d"), await c.metrics("p")
            assert decode["vllm:prompt_tokens_by_source_total", "external_kv_transfer"] == 200
            assert decode["vllm:prompt_tokens_by_source_total", "local_compute"] == 0
            assert decode["vllm:nixl_xfer_time_seconds_count", ""] == 1
            # 13 blocks of 16 tokens; 2 x 16 layers x 8 heads x 64 x 2 bytes a token
            assert decode["vllm:nixl_bytes_transferred_sum", ""] == 13 * 16 * 32768
            assert decode["vllm:nixl_num_descriptors_sum", ""] == 2 * 16 * 13
            assert prefill["vllm:nixl_xfer_time_seconds_count", ""] == 0
            assert prefill["vllm:request_success_total", "length"] == 2
            assert prefill["vllm:kv_cache_usage_perc", ""] == 0  # read, so no longer kept
            assert prefill["vllm:nixl_num_kv_expired_reqs_total", ""] == 0
            await c.ask("d", PROMPT + "and more", via="p")
            again = await c.metrics("d")
            # What decode has in its own prefix cache does not move again.
            assert again["vllm:prompt_tokens_by_source_total", "local_cache_hit"] == 192
            assert again["vllm:prompt_tokens_by_source_total", "external_kv_transfer"] == 200 + 10
            # Under a salt of its own nothing of it is found, and the model does not see the salt.
            salted = await c.ask("d", PROMPT, via="p", cache_salt="other")
            assert salted[1]["choices"][0]["text"] == alone
            apart = await c.metrics("d")
            assert apart["vllm:prompt_tokens_by_source_total", "local_cache_hit"] == 192
            assert apart["vllm:prompt_tokens_by_source_total", "external_kv_transfer"] == 410

    asyncio.run(scenario())


def test_every_decode_rank_reads_its_share_and_a_latent_is_read_whole() -> None:
    async def scenario() -> None:
        heads = pair({"tp": 4}, {"tp": 4})
        latent = [
            pod("lp", "prefill", 3, model="deepseek-ai/DeepSeek-V3", tp=8),
            pod("ld", "decode", 4, model="deepseek-ai/DeepSeek-V3", tp=8),
        ]
        async with cluster(*heads, *latent) as c:
            await c.text("d", PROMPT, via="p")
            await c.text("ld", PROMPT, via="lp")
            seen = await c.metrics("d")
            assert seen["vllm:nixl_bytes_transferred_count", ""] == 4
            assert seen["vllm:nixl_bytes_transferred_sum", ""] == 13 * 16 * 32768
            seen = await c.metrics("ld")
            assert seen["vllm:nixl_bytes_transferred_count", ""] == 8
            assert seen["vllm:nixl_bytes_transferred_sum", ""] == 8 * 256 * 61 * 576 * 2  # blocks of 64

    asyncio.run(scenario())


def test_the_link_decides_the_time_of_a_read() -> None:
    async def scenario() -> None:
        slow = {"env": {"ENGINE_LINK": "tcp"}}
        async with cluster(*pair(slow, {}), pod("q", "prefill", 3)) as c:
            await c.text("d", PROMPT, via="q")
            fast = (await c.metrics("d"))["vllm:nixl_xfer_time_seconds_sum", ""]
            await c.text("d", "!" + PROMPT, via="p")  # the slower of the two ends counts
            both = (await c.metrics("d"))["vllm:nixl_xfer_time_seconds_sum", ""]
            size = 13 * 16 * 32768
            assert fast == pytest.approx(0.001 + 416 * 2e-7 + size / 45e9)
            assert both - fast == pytest.approx(0.001 + 416 * 2e-7 + size / 1e9)

    asyncio.run(scenario())


NHD = {"VLLM_KV_CACHE_LAYOUT": "NHD"}
SPECULATIVE = {"method": "eagle3", "model": "draft", "num_speculative_tokens": 3}
FACTORS: dict[str, tuple[Options, Options]] = {
    "version": ({"version": "0.30.0"}, {"version": "0.30.1"}),
    "release and protocol": ({"version": "0.30.0"}, {"version": "0.33.0"}),
    "path instead of hub id": ({"model": "meta-llama/Llama-3.1-8B"}, {"model": "/models/Llama-3.1-8B"}),
    "dtype": ({"dtype": "float16"}, {"dtype": "bfloat16"}),
    "heads": ({}, {"extra": ["--hf-overrides", '{"num_key_value_heads": 4}']}),
    "head size": ({}, {"extra": ["--hf-overrides", '{"head_dim": 128}']}),
    "layers": ({}, {"extra": ["--hf-overrides", '{"num_hidden_layers": 15}']}),
    "attention backend": ({}, {"attention_backend": "FLASHINFER"}),
    "GPU generation": ({}, {"env": {"ENGINE_GPU": "B200"}}),
    "cache dtype": ({}, {"kv_cache_dtype": "fp8"}),
    "cache dtype by another name": ({"kv_cache_dtype": "fp8"}, {"kv_cache_dtype": "fp8_e4m3"}),
    "auto against what it is": ({"kv_cache_dtype": "auto"}, {"kv_cache_dtype": "bfloat16"}),
    "hybrid manager": ({}, {"extra": ["--disable-hybrid-kv-cache-manager"]}),
    "speculation": ({}, {"speculative": SPECULATIVE}),
    "push instead of pull": ({"connector": "NixlPushConnector"}, {}),
    "cross-layer blocks": (
        {"version": "0.26.0", "transfer_extra": {"enable_cross_layers_blocks": True}},
        {"version": "0.26.0"},
    ),
}


@pytest.mark.parametrize("factor", FACTORS)
def test_each_factor_of_the_hash_alone_makes_a_pair_fail(factor: str) -> None:
    async def scenario() -> None:
        lease = {"kv_lease_duration": 1000.0}
        prefill, decode = ({**options} for options in FACTORS[factor])
        prefill["transfer_extra"] = {**lease, **prefill.get("transfer_extra", {})}
        decode["transfer_extra"] = {**lease, **decode.get("transfer_extra", {})}
        async with cluster(*pair(prefill, decode)) as c:
            # The body must fit both engines: no model name in it.
            status, answer = await c.ask("d", PROMPT, via="p")
            assert status == 500, answer
            assert "KV load failure" in answer["error"]["message"]
            seen = await c.metrics("d")
            assert seen["vllm:request_success_total", "error"] == 1
            assert seen["vllm:nixl_num_failed_transfers_total", ""] == 1
            assert seen["vllm:nixl_xfer_time_seconds_count", ""] == 0
            prefill_side = await c.metrics("p")
            assert prefill_side["vllm:kv_cache_usage_perc", ""] > 0
            assert prefill_side["vllm:nixl_num_kv_expired_reqs_total", ""] == 0
            c.skip(1001)
            prefill_side = await c.metrics("p")
            assert prefill_side["vllm:kv_cache_usage_perc", ""] == 0
            assert prefill_side["vllm:nixl_num_kv_expired_reqs_total", ""] == 1
            assert any("hash mismatch" in line for line in c.engine("d").log)
            # Each engine alone is healthy: only the pair is not.
            assert (await c.ask("d", PROMPT))[0] == 200

    asyncio.run(scenario())


IGNORED: dict[str, tuple[Options, Options]] = {
    "guesses without a draft model": ({}, {"speculative": {"method": "ngram", "num_speculative_tokens": 4}}),
    "how much is guessed": (
        {"speculative": SPECULATIVE},
        {"speculative": {**SPECULATIVE, "num_speculative_tokens": 5}},
    ),
    "max length": ({"max_model_len": 4096}, {"max_model_len": 8192}),
    "tensor parallel": ({"tp": 1}, {"tp": 4}),
    "memory": ({}, {"extra": ["--gpu-memory-utilization", "0.8"]}),
    "bigger blocks on decode": ({"block_size": 16}, {"block_size": 32}),
    "cross-layer blocks in releases without them": (
        {"transfer_extra": {"enable_cross_layers_blocks": True}},
        {},
    ),
    "speculation before it was hashed": (
        {"version": "0.26.0", "speculative": SPECULATIVE},
        {"version": "0.26.0"},
    ),
}


@pytest.mark.parametrize("what", IGNORED)
def test_what_the_hash_does_not_know_and_geometry_allows_works(what: str) -> None:
    async def scenario() -> None:
        async with cluster(*pair(*IGNORED[what])) as c:
            expected = await c.text("p", PROMPT)
            assert await c.text("d", PROMPT, via="p") == expected
            assert await moved(c) > 0

    asyncio.run(scenario())


GEOMETRY: dict[str, tuple[Options, Options, str]] = {
    "smaller blocks on decode": (
        {"block_size": 32},
        {"block_size": 16},
        "not divisible by remote block size 32",
    ),
    "blocks that do not divide": (
        {"block_size": 32},
        {"block_size": 48},
        "not divisible by remote block size",
    ),
    "ranks that do not divide": ({"tp": 2}, {"tp": 3}, "tensor parallel size"),
    "more prefill ranks than heads": ({"tp": 16}, {"tp": 1}, "KV heads"),
    "layout": ({}, {"env": NHD}, "kv_cache_layout"),
    "heads that are not contiguous": ({"env": NHD, "tp": 1}, {"env": NHD, "tp": 2}, "contiguous heads"),
    "one head per prefill rank": ({"env": NHD, "tp": 8}, {"env": NHD, "tp": 16}, "contiguous heads"),
    "other blocks with a host buffer": (
        {"block_size": 16},
        {"block_size": 32, "transfer": {"kv_buffer_device": "cpu"}},
        "host buffer",
    ),
    "fewer ranks with other blocks": ({"block_size": 16, "tp": 2}, {"block_size": 32, "tp": 1}, "block size"),
    "more decode ranks than heads in an old release": (
        {"version": "0.20.0", "tp": 8},
        {"version": "0.20.0", "tp": 16},
        "exceeds 8 KV heads",
    ),
    "NVFP4 over other ranks": (
        {"kv_cache_dtype": "nvfp4", "tp": 1},
        {"kv_cache_dtype": "nvfp4", "tp": 2},
        "NVFP4",
    ),
}


@pytest.mark.parametrize("rule", GEOMETRY)
def test_each_rule_of_geometry_refuses_although_hashes_are_equal(rule: str) -> None:
    prefill, decode, reason = GEOMETRY[rule]

    async def scenario() -> None:
        async with cluster(*pair(prefill, decode)) as c:
            assert (await c.ask("d", PROMPT, via="p"))[0] == 500
            assert any(reason in line for line in c.engine("d").log), c.engine("d").log
            assert not any("hash mismatch" in line for line in c.engine("d").log)

    asyncio.run(scenario())


def test_a_latent_needs_no_layout_and_any_ranks_that_divide() -> None:
    async def scenario() -> None:
        model = {"model": "deepseek-ai/DeepSeek-V3"}
        async with cluster(*pair({**model, "tp": 8, "env": NHD}, {**model, "tp": 4})) as c:
            assert (await c.ask("d", PROMPT, via="p"))[0] == 200

    asyncio.run(scenario())


def test_recompute_hides_a_refused_pair_as_work_on_decode() -> None:
    async def scenario() -> None:
        async with cluster(*pair({}, {"dtype": "float16", "failure_policy": "recompute"})) as c:
            status, answer = await c.ask("d", PROMPT, via="p")
            assert status == 200 and answer["choices"][0]["text"] == await c.text("p", PROMPT)
            seen = await c.metrics("d")
            assert seen["vllm:nixl_num_failed_transfers_total", ""] == 1
            assert seen["vllm:prompt_tokens_by_source_total", "local_compute"] == 200
            assert seen["vllm:request_success_total", "error"] == 0
            rows = (await c.admin_get("/books"))["rows"]
            assert [row["kv"] for row in rows] == ["failed", "local"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("version", "failures"),
    [("0.20.0", 0), ("0.23.0", 6), ("0.30.0", 6), ("0.33.0", 1)],
)
def test_failed_handshakes_are_counted_as_the_release_counts_them(version: str, failures: int) -> None:
    """Three requests wait for one handshake of an engine with two ranks."""

    async def scenario() -> None:
        both = {"version": version, "tp": 2}
        async with cluster(*pair({**both, "dtype": "float16"}, both)) as c:
            answers = await asyncio.gather(*(c.ask("d", f"{n} {PROMPT}", via="p") for n in range(3)))
            assert [status for status, _ in answers] == [500] * 3
            assert (await c.metrics("d"))["vllm:nixl_num_failed_transfers_total", ""] == failures

    asyncio.run(scenario())


def test_a_handshake_that_succeeded_is_not_made_again_and_one_that_failed_is() -> None:
    async def scenario() -> None:
        slow = {"env": {"ENGINE_HANDSHAKE_SECONDS": "30"}}  # 0.3 s here
        async with cluster(*pair({}, slow), pod("x", "decode", 3, dtype="float16", **slow)) as c:
            await c.text("d", "a" + PROMPT, via="p")
            _, first = c.engine("d").metrics.observations("vllm:time_to_first_token_seconds")
            await c.text("d", "b" + PROMPT, via="p")
            _, both = c.engine("d").metrics.observations("vllm:time_to_first_token_seconds")
            assert first > 30 and both - first < 1
            for _ in range(2):
                status, _ = await c.ask("x", PROMPT, via="p")
                assert status == 500
            rows = (await c.admin_get("/books"))["rows"]
            assert all(row["seconds"] >= 0.3 for row in rows if row["decode"] == "x")

    asyncio.run(scenario())


WEIGHTS: dict[str, tuple[Options, Options]] = {
    "model revision": ({"model_revision": "v1"}, {"model_revision": "v2"}),
    "quantisation": ({}, {"quantization": "fp8"}),
    "overrides that keep the geometry": ({}, {"extra": ["--hf-overrides", '{"rope_theta": 5e5}']}),
}


@pytest.mark.parametrize("what", WEIGHTS)
def test_weights_that_do_not_belong_together_answer_200_with_wrong_tokens_and_green_metrics(
    what: str,
) -> None:
    async def scenario() -> None:
        prefill, decode = WEIGHTS[what]
        async with cluster(*pair(prefill, decode)) as c:
            right = (await c.text("d", PROMPT, max_tokens=64)).split()
            wrong = (await c.text("d", "!" + PROMPT, max_tokens=64, via="p")).split()
            right_too = (await c.text("d", "!" + PROMPT, max_tokens=64)).split()
            differ = sum(a != b for a, b in zip(wrong, right_too, strict=True))
            assert 0 < differ < 64 and len(right) == 64
            seen = await c.metrics("d")
            assert seen["vllm:nixl_num_failed_transfers_total", ""] == 0
            assert seen["vllm:request_success_total", "error"] == 0
            assert seen["vllm:nixl_xfer_time_seconds_count", ""] == 1
            rows = (await c.admin_get("/books"))["rows"]
            assert [row["corrupted"] for row in rows] == [False, True, False]
            assert (await c.admin_get("/books/summary"))["mixed"] == {"all": 1, "ok": 1, "corrupted": 1}

    asyncio.run(scenario())


def test_main_is_what_no_revision_means() -> None:
    async def scenario() -> None:
        async with cluster(*pair({"model_revision": "main"}, {})) as c:
            assert await c.text("d", PROMPT, via="p") == await c.text("p", PROMPT)

    asyncio.run(scenario())


def test_without_enforcement_a_mismatch_becomes_garbage_instead_of_an_error() -> None:
    async def scenario() -> None:
        lax = {"transfer_extra": {"enforce_handshake_compat": False}, "dtype": "float16"}
        async with cluster(*pair({}, lax)) as c:
            status, answer = await c.ask("d", PROMPT, via="p", max_tokens=32, logprobs=1)
            assert status == 200
            logprobs = answer["choices"][0]["logprobs"]["token_logprobs"]
            assert sum(logprobs) / len(logprobs) < -3  # as unlikely as garbage is

    asyncio.run(scenario())
