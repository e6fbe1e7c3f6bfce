"""What becomes of a prompt without a peer, of answers from prefill, and of KV that nobody reads in time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.demo.engines.cluster import PROMPT, cluster, moved, pair, pod, until

NO_KV = {"connector": ""}


def test_a_decode_engine_computes_alone_without_the_header_or_without_a_connector() -> None:
    async def scenario() -> None:
        async with cluster(*pair(NO_KV, {}), pod("e", "decode", 3, **NO_KV), pod("q", "prefill", 4)) as c:
            await c.text("d", PROMPT)
            await c.text("d", "!" + PROMPT, via="p")  # prefill keeps nothing
            await c.text("e", PROMPT, via="q")  # decode reads nothing
            seen = await c.metrics("d")
            assert seen["vllm:prompt_tokens_by_source_total", "local_compute"] == 200 + 201
            assert await moved(c) == 0
            assert ("vllm:nixl_xfer_time_seconds_count", "") not in await c.metrics("e")
            rows = (await c.admin_get("/books"))["rows"]
            assert [(row["prefill"], row["kv"]) for row in rows] == [
                ("", "local"),
                ("p", "local"),
                ("q", "local"),
            ]

    asyncio.run(scenario())


def test_what_prefill_answers_is_what_the_client_gets() -> None:
    async def scenario() -> None:
        async with cluster(*pair({}, {})) as c:
            await c.fault({"role": "prefill"}, refuse={"status": 429})
            status, answer = await c.ask("d", PROMPT, via="p")
            assert status == 429 and "takes no requests" in answer["error"]["message"]
            address = c.address("p")
            c.api.delete("p")
            await until(lambda: "serving/p" not in c.fleet.hosts)
            await until(lambda: not c.fleet.addresses.get(address.split(":")[0]))
            status, answer = await c.ask("d", PROMPT, headers={"x-prefiller-host-port": address})
            assert status == 502
            assert (await c.ask("d", PROMPT, headers={"x-prefiller-host-port": "192.0.2.1:8000"}))[0] == 403

    asyncio.run(scenario())


@pytest.mark.parametrize("env", [[], [{"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "value": "localhost"}]])
def test_a_side_channel_that_names_its_own_machine_cannot_be_reached(env: list[dict[str, Any]]) -> None:
    async def scenario() -> None:
        unset = pair({}, {})
        unset[0]["spec"]["containers"][0]["env"] = env
        async with cluster(*unset) as c:
            assert (await c.ask("d", PROMPT, via="p"))[0] == 500
            assert any("no answer from the side channel of localhost" in line for line in c.engine("d").log)

    asyncio.run(scenario())


def test_a_lease_holds_while_decode_waits_and_ends_when_nobody_comes() -> None:
    """The sidecar's two halves by hand, so that time can pass between them."""

    async def scenario() -> None:
        lease = {"transfer_extra": {"kv_lease_duration": 1000.0}}
        async with cluster(*pair({**lease, "version": "0.33.0"}, {**lease, "version": "0.33.0"})) as c:

            async def prefill(prompt: str) -> dict[str, Any]:
                half = {"do_remote_decode": True, "do_remote_prefill": False}
                status, answer = await c.ask("p", prompt, max_tokens=1, kv_transfer_params=half)
                assert status == 200
                found: dict[str, Any] = answer["kv_transfer_params"]
                return found

            kept = await prefill(PROMPT)
            assert kept["remote_engine_id"] == c.engine("p").engine_id
            assert len(kept["remote_block_ids"]) == 13
            status, _ = await c.ask("d", PROMPT, kv_transfer_params=kept)
            assert status == 200 and await moved(c) == 1
            late = await prefill("!" + PROMPT)
            c.skip(1001)
            status, _ = await c.ask("d", "!" + PROMPT, kv_transfer_params=late)
            # Memory that was freed but not yet used again is read as if nothing was wrong.
            assert status == 200
            seen = await c.metrics("p")
            assert seen["vllm:nixl_num_kv_expired_reqs_total", ""] == 1
            assert seen["vllm:nixl_num_notifications_after_expiry_total", ""] == 1
            # Nothing of this is a row of its own: two requests, two prefill halves.
            summary = await c.admin_get("/books/summary")
            assert (summary["requests"], summary["prefill_legs"]) == (2, 2)
            assert summary["corrupted"] == 0

    asyncio.run(scenario())


def test_freed_memory_that_was_used_again_is_read_as_garbage() -> None:
    async def scenario() -> None:
        few = {"extra": ["--num-gpu-blocks-override", "40"], "transfer_extra": {"kv_lease_duration": 1000.0}}
        async with cluster(*pair(few, few)) as c:
            half = {"do_remote_decode": True, "do_remote_prefill": False}
            _, answer = await c.ask("p", PROMPT, max_tokens=1, kv_transfer_params=half)
            c.skip(1001)
            for number in range(4):
                await c.text("p", f"{number} other {PROMPT}")
            status, late = await c.ask("d", PROMPT, kv_transfer_params=answer["kv_transfer_params"])
            assert status == 200 and late["choices"][0]["text"] != await c.text("p", PROMPT)

    asyncio.run(scenario())


def test_an_engine_without_free_blocks_lets_requests_wait_for_leases() -> None:
    async def scenario() -> None:
        few = {"extra": ["--num-gpu-blocks-override", "20"], "transfer_extra": {"kv_lease_duration": 1000.0}}
        async with cluster(*pair(few, {**few, "dtype": "float16"})) as c:
            await c.ask("d", PROMPT, via="p")  # refused: 13 of 20 blocks stay leased
            waiting = asyncio.ensure_future(c.ask("p", "!" + PROMPT))

            def waits() -> bool:
                metrics = c.engine("p").metrics
                metrics.exposition()
                return metrics.value("vllm:num_requests_waiting_by_reason", "capacity") == 1

            await until(waits)
            c.skip(1001)
            status, _ = await waiting
            assert status == 200
            seen = await c.metrics("p")
            assert seen["vllm:nixl_num_kv_expired_reqs_total", ""] == 1
            assert seen["vllm:request_queue_time_seconds_sum", ""] > 1000

    asyncio.run(scenario())
