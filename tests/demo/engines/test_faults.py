"""Misbehaviour on request: a faulty part, a pair that does not work, and everything in between."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import aiohttp
import pytest

from deploy.demo.engines.roles import engine_env
from tests.demo.engines.cluster import Cluster, cluster, pod, until

PROMPT = "the quick brown fox " * 40


def four() -> list[dict[str, Any]]:
    """Two revisions, each with a prefill and a decode engine."""
    return [
        pod("p-old", "prefill", 1, revision="old"),
        pod("d-old", "decode", 2, revision="old"),
        pod("p-new", "prefill", 3, revision="new"),
        pod("d-new", "decode", 4, revision="new"),
    ]


PAIRS = [(p, d) for p in ("p-old", "p-new") for d in ("d-old", "d-new")]


async def wrong_pairs(c: Cluster, *, prompt: str = PROMPT) -> set[tuple[str, str]]:
    """Pairs whose answer is 200 and not what the decode engine says alone."""
    found = set()
    for prefill, decode in PAIRS:
        text = f"{prefill} {decode} {prompt}"
        alone = await c.text(decode, text, max_tokens=32)
        if await c.text(decode, f"{text}", via=prefill, max_tokens=32) != alone:
            found.add((prefill, decode))
    return found


def restarted(document: dict[str, Any]) -> dict[str, Any]:
    changed = copy.deepcopy(document)
    changed["status"]["containerStatuses"][0]["restartCount"] += 1
    return changed


def test_a_corrupting_pair_is_wrong_only_together_and_everything_looks_healthy() -> None:
    async def scenario() -> None:
        async with cluster(*four()) as c:
            await c.fault({"pair": ["old", "new"]}, corrupt_pair={"fraction": 0.3})
            assert await wrong_pairs(c) == {("p-old", "d-new")}
            for name in ("p-old", "d-new"):
                seen = await c.metrics(name)
                assert seen["vllm:request_success_total", "error"] == 0
                assert seen["vllm:nixl_num_failed_transfers_total", ""] == 0
            rows = (await c.admin_get("/books"))["rows"]
            wrong = [(row["prefill"], row["decode"], row["status"]) for row in rows if row["corrupted"]]
            assert wrong == [("p-old", "d-new", 200)]

    asyncio.run(scenario())


def test_a_faulty_part_is_wrong_in_every_pair_it_takes_part_in() -> None:
    async def scenario() -> None:
        async with cluster(*four()) as c:
            rule = await c.fault({"pod": "p-new"}, corrupt={"fraction": 0.5})
            assert await wrong_pairs(c) == {("p-new", "d-old"), ("p-new", "d-new")}
            async with c.client.delete(f"{c.admin}/faults", params={"id": rule}) as answer:
                assert await answer.json() == {"removed": 1}
            assert await wrong_pairs(c, prompt="!" + PROMPT) == set()
            right = await c.text("d-new", PROMPT)
            await c.fault({"role": "decode", "revision": "new"}, corrupt={})
            assert await c.text("d-new", PROMPT) != right  # alone too
            assert await c.text("d-old", PROMPT) == right

    asyncio.run(scenario())


def test_quiet_corruption_keeps_its_log_probabilities() -> None:
    async def scenario() -> None:
        async with cluster(pod("d", "decode", 1)) as c:

            async def answer() -> tuple[str, list[float]]:
                _, found = await c.ask("d", PROMPT, max_tokens=32, logprobs=0)
                choice = found["choices"][0]
                return choice["text"], choice["logprobs"]["token_logprobs"]

            right, healthy = await answer()
            await c.fault({}, corrupt={"quiet": True})
            wrong, quiet = await answer()
            await c.fault({}, corrupt={})
            _, garbage = await answer()
            assert wrong != right and quiet == healthy
            assert sum(garbage) / 32 < -3 < sum(healthy) / 32

    asyncio.run(scenario())


def test_an_incompatible_pair_fails_and_the_others_do_not() -> None:
    async def scenario() -> None:
        async with cluster(*four()) as c:
            await c.fault({"pair": ["new", "*"], "set": "chat"}, incompatible_pair={})
            statuses = {pair: (await c.ask(pair[1], PROMPT, via=pair[0]))[0] for pair in PAIRS}
            assert statuses == {pair: 500 if pair[0] == "p-new" else 200 for pair in PAIRS}
            by_pair = (await c.admin_get("/books/summary"))["by_pair"]
            failed = {
                (row["prefill_revision"], row["decode_revision"]) for row in by_pair if row["status"] == 500
            }
            assert failed == {("new", "old"), ("new", "new")}

    asyncio.run(scenario())


def test_a_stale_agent_fails_until_decode_restarts() -> None:
    async def scenario() -> None:
        old, decode, other = pod("p", "prefill", 1), pod("d", "decode", 2), pod("d2", "decode", 3)
        async with cluster(old, decode, other) as c:
            await c.fault({"pod": "d"}, stale_agent={})
            for name in ("d", "d2"):
                assert (await c.ask(name, PROMPT, via="p"))[0] == 200
            first = c.engine("p").engine_id
            c.api.put(restarted(old))
            await until(lambda: c.fleet.hosts["serving/p"].engine and c.engine("p").engine_id != first)
            for _ in range(2):
                assert (await c.ask("d", "!" + PROMPT, via="p"))[0] == 500
            assert (await c.ask("d2", "!" + PROMPT, via="p"))[0] == 200
            assert (await c.metrics("d"))["vllm:nixl_num_failed_transfers_total", ""] == 2
            assert (await c.metrics("p"))["vllm:nixl_num_kv_expired_reqs_total", ""] == 0
            async with c.client.delete(f"{c.admin}/faults"):
                pass
            assert (await c.ask("d", "?" + PROMPT, via="p"))[0] == 500  # what it believes, it believes
            second = c.engine("d").engine_id
            c.api.put(restarted(decode))
            await until(lambda: c.fleet.hosts["serving/d"].engine and c.engine("d").engine_id != second)
            assert (await c.ask("d", PROMPT, via="p"))[0] == 200

    asyncio.run(scenario())


def test_a_lease_that_is_too_short_expires_and_its_memory_is_read_as_garbage() -> None:
    async def scenario() -> None:
        async with cluster(
            pod("p", "prefill", 1, version="0.33.0"), pod("d", "decode", 2, version="0.33.0")
        ) as c:
            right = await c.text("d", PROMPT, max_tokens=32)
            rule = await c.fault({"role": "prefill"}, short_lease={"seconds": 0, "overwritten": False})
            assert await c.text("d", PROMPT, via="p", max_tokens=32) == right  # freed, but not used again yet
            await c.fault({"role": "prefill"}, short_lease={"seconds": 0})
            assert await c.text("d", PROMPT, via="p", max_tokens=32) != right
            seen = await c.metrics("p")
            assert seen["vllm:nixl_num_kv_expired_reqs_total", ""] == 2
            assert seen["vllm:nixl_num_notifications_after_expiry_total", ""] == 2
            assert (await c.metrics("d"))["vllm:nixl_num_failed_transfers_total", ""] == 0
            assert rule == 1

    asyncio.run(scenario())


def test_a_crash_resets_connections_and_comes_back_as_a_new_engine() -> None:
    async def scenario() -> None:
        async with cluster(pod("d", "decode", 1), pod("e", "decode", 2)) as c:
            first = c.engine("d").engine_id
            await c.fault({"pod": "d"}, slow={"factor": 200.0})
            running = asyncio.ensure_future(
                c.ask("d", PROMPT, max_tokens=200, headers={"x-request-id": "cut"})
            )
            await until(lambda: c.engine("d").served)
            await c.fault({"pod": "d"}, crash={"seconds": 150.0})
            with pytest.raises(aiohttp.ClientError):
                await running
            with pytest.raises(aiohttp.ClientConnectorError):
                await c.ask("d")
            assert (await c.ask("e"))[0] == 200
            await until(lambda: c.fleet.hosts["serving/d"].engine)
            assert c.engine("d").engine_id != first
            assert (await c.metrics("d"))["vllm:request_success_total", "length"] == 0
            rows = (await c.admin_get("/books"))["rows"]
            assert [(row["request_id"], row["status"]) for row in rows][0] == ("cut", 0)

    asyncio.run(scenario())


def test_a_crash_after_so_many_requests() -> None:
    async def scenario() -> None:
        env = engine_env(faults={"crash": {"after_requests": 3, "seconds": 1.0}})
        async with cluster(pod("d", "decode", 1, env=env)) as c:
            for _ in range(2):
                assert (await c.ask("d"))[0] == 200
            with pytest.raises(aiohttp.ClientError):
                await c.ask("d")
            await until(lambda: c.fleet.hosts["serving/d"].engine)
            assert (await c.ask("d"))[0] == 200

    asyncio.run(scenario())


def test_slow_and_cold_engines_take_their_time_as_metrics_show() -> None:
    async def scenario() -> None:
        cold = engine_env(faults={"cold_start": {"requests": 2, "factor": 10.0}})
        async with cluster(
            pod("d", "decode", 1), pod("s", "decode", 2), pod("c", "decode", 3, env=cold)
        ) as c:
            await c.fault({"pod": "s"}, slow={"factor": 4.0})

            async def first_token(name: str, prompt: str) -> float:
                before = c.engine(name).metrics.observations("vllm:time_to_first_token_seconds")[1]
                await c.text(name, prompt + PROMPT)
                return c.engine(name).metrics.observations("vllm:time_to_first_token_seconds")[1] - before

            usual = await first_token("d", "")
            assert await first_token("s", "") == pytest.approx(4 * usual)
            seen = [await first_token("c", str(number)) for number in range(3)]
            assert seen == pytest.approx([10 * usual, 10 * usual, usual], rel=0.05)

    asyncio.run(scenario())


def test_refusals_and_statuses_in_a_share_of_requests() -> None:
    async def scenario() -> None:
        async with cluster(pod("d", "decode", 1, version="0.33.0"), pod("e", "decode", 2)) as c:
            await c.fault({"pod": "d"}, refuse={"status": 429, "share": 0.5})
            await c.fault({"pod": "e"}, status={"code": 418, "message": "short and stout"})
            refused = [(await c.ask("d"))[0] for _ in range(200)]
            assert 60 < refused.count(429) < 140 and refused.count(200) == 200 - refused.count(429)
            seen = await c.metrics("d")
            assert sum(
                v for (n, _), v in seen.items() if n == "vllm:admission_rejections_total"
            ) == refused.count(429)
            status, answer = await c.ask("e")
            assert status == 418 and answer["error"]["message"] == "short and stout"

    asyncio.run(scenario())


def test_faults_of_the_environment_stay_and_live_ones_come_first() -> None:
    async def scenario() -> None:
        env = engine_env(faults={"refuse": {"status": 503}})
        async with cluster(pod("d", "decode", 1, env=env), pod("e", "decode", 2)) as c:
            assert (await c.ask("d"))[0] == 503
            await c.fault({"role": "decode"}, refuse={"status": 429})
            assert (await c.ask("d"))[0] == (await c.ask("e"))[0] == 429
            listed = (await c.admin_get("/faults"))["faults"]
            refuse = {"refuse": {"status": 429, "share": 1.0}}
            assert listed == [{"id": 1, "match": {"role": "decode"}, "fault": refuse}]
            async with c.client.delete(f"{c.admin}/faults"):
                pass
            assert [(await c.ask(name))[0] for name in "de"] == [503, 200]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"fault": {"explode": {}}}, "unknown fault 'explode'"),
        ({"fault": {"slow": {"by": 3}}}, "slow takes factor"),
        ({"fault": {"slow": {"factor": "3"}}}, "slow.factor is like 3.0"),
        ({"fault": {"corrupt": {"quiet": 1}}}, "corrupt.quiet is like False"),
        ({"fault": {"slow": {"factor": True}}}, "slow.factor is like 3.0"),
        ({"fault": {}}, "a fault is an object"),
        ({"match": {"node": "n"}, "fault": {"slow": {}}}, "match takes"),
        ({"match": {"pair": ["a"]}, "fault": {"corrupt_pair": {}}}, "a pair is"),
        ({"match": {"pair": ["a", "b"]}, "fault": {"slow": {}}}, "a pair can have"),
        ([], "the body is an object"),
    ],
)
def test_a_fault_that_nobody_understands_is_refused_by_name(body: Any, says: str) -> None:
    async def scenario() -> None:
        async with cluster() as c, c.client.post(f"{c.admin}/faults", json=body) as answer:
            assert answer.status == 400
            assert says in (await answer.json())["detail"]

    asyncio.run(scenario())


def test_an_environment_that_nobody_understands_is_a_line_of_the_log() -> None:
    async def scenario() -> None:
        async with cluster(pod("d", "decode", 1, env={"ENGINE_FAULTS": "{'slow'"})) as c:
            assert (await c.ask("d"))[0] == 200
            engines = (await c.admin_get("/engines?log=3"))["engines"]
            assert "ENGINE_FAULTS of serving/d" in engines[0]["log"][0]

    asyncio.run(scenario())


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_pair_may_misbehave_by_either_side_s_environment(role: str) -> None:
    async def scenario() -> None:
        env = engine_env(faults={"corrupt_pair": {"fraction": 1.0}})
        sides = {"prefill": 1, "decode": 2}
        pods = [pod(name, name, number, env=env if name == role else {}) for name, number in sides.items()]
        async with cluster(*pods) as c:
            alone = await c.text("decode", PROMPT)
            assert await c.text("decode", PROMPT, via="prefill") != alone

    asyncio.run(scenario())
