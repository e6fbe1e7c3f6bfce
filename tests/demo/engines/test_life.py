"""Listeners come and go with their pods."""

from __future__ import annotations

import asyncio
import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest

from tests.demo.engines.cluster import Cluster, cluster, pod, until


def changed(document: dict[str, Any], **status: Any) -> dict[str, Any]:
    """A pod with other fields of its container's status; ready goes to the condition too."""
    copied = copy.deepcopy(document)
    copied["status"]["containerStatuses"][0].update(status)
    if "ready" in status:
        copied["status"]["conditions"] = [{"type": "Ready", "status": str(status["ready"])}]
    return copied


async def refuses(c: Cluster, address: str) -> bool:
    try:
        async with c.client.get(f"http://{address}/health"):
            return False
    except aiohttp.ClientConnectorError:
        return True


async def until_refused(c: Cluster, address: str) -> None:
    for _ in range(200):
        if await refuses(c, address):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{address} still answers")


def test_a_pod_answers_from_running_to_its_end() -> None:
    async def scenario() -> None:
        async with cluster() as c:
            waiting = pod("d", "decode", 1, state="pending")
            c.api.put(waiting)
            await until(lambda: "serving/d" in c.fleet.hosts)
            assert await refuses(c, c.address("d"))
            running = copy.deepcopy(waiting)
            running["status"]["phase"] = "Running"
            await c.add(changed(running, started=False, ready=False))
            for path in ("/health", "/metrics", "/v1/models"):
                assert (await c.get("d", path))[0] == 503
            assert (await c.ask("d"))[0] == 503
            c.api.put(changed(running, started=True, ready=True))
            await until(lambda: c.engine("d") and not c.fleet.hosts["serving/d"].serving.loading)
            assert (await c.get("d", "/health"))[0] == 200
            assert (await c.ask("d"))[0] == 200
            address = c.address("d")
            c.api.delete("d")
            await until_refused(c, address)
            assert c.fleet.addresses == {}

    asyncio.run(scenario())


def test_an_engine_that_stops_being_ready_says_so_and_still_answers() -> None:
    async def scenario() -> None:
        made = pod("d", "decode", 1)
        async with cluster(made) as c:
            for started in (True, False):
                c.api.put(changed(made, ready=False, started=started))
                await until(lambda: not c.fleet.hosts["serving/d"].serving.ready)
                assert (await c.get("d", "/health"))[0] == 503
                assert (await c.ask("d"))[0] == 200
                c.api.put(changed(made, ready=True))
                await until(lambda: c.fleet.hosts["serving/d"].serving.ready)

    asyncio.run(scenario())


def test_a_restarted_container_counts_from_zero_under_another_engine_id() -> None:
    async def scenario() -> None:
        made = pod("d", "decode", 1)
        async with cluster(made) as c:
            await c.ask("d")
            first = c.engine("d").engine_id
            assert (await c.metrics("d"))["vllm:request_success_total", "length"] == 1
            waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
            c.api.put(changed(made, state=waiting, restartCount=1, ready=False, started=False))
            await until_refused(c, c.address("d"))
            c.api.put(changed(made, restartCount=1))
            await until(lambda: c.fleet.hosts["serving/d"].engine)
            assert c.engine("d").engine_id != first
            assert (await c.metrics("d"))["vllm:request_success_total", "length"] == 0

    asyncio.run(scenario())


def test_a_pod_of_the_same_name_and_address_is_another_engine() -> None:
    async def scenario() -> None:
        async with cluster(pod("d", "decode", 1)) as c:
            await c.ask("d")
            first = c.engine("d").engine_id
            c.api.delete("d")
            await c.add(pod("d", "decode", 1))
            assert c.engine("d").engine_id != first
            assert (await c.metrics("d"))["vllm:request_success_total", "length"] == 0

    asyncio.run(scenario())


def test_an_ending_pod_takes_nothing_new_and_finishes_what_it_began() -> None:
    async def scenario() -> None:
        made = pod("d", "decode", 1)
        async with cluster(made, scale=0.02) as c:
            await c.fault({}, slow={"factor": 60.0})
            running = asyncio.ensure_future(c.ask("d", max_tokens=100))
            await until(lambda: c.engine("d").served)
            ending = copy.deepcopy(made)
            ending["metadata"]["deletionTimestamp"] = (datetime.now(UTC) + timedelta(seconds=30)).isoformat()
            c.api.put(ending)
            await until_refused(c, c.address("d"))
            assert not running.done()
            status, answer = await running
            assert status == 200 and answer["usage"]["completion_tokens"] == 100
            assert (await c.admin_get("/books"))["rows"][0]["status"] == 200

    asyncio.run(scenario())


def test_what_runs_when_the_grace_is_over_is_cut() -> None:
    async def scenario() -> None:
        made = pod("d", "decode", 1)
        async with cluster(made) as c:
            await c.fault({}, slow={"factor": 500.0})
            for cut in (False, True):
                served = c.engine("d").served
                running = asyncio.ensure_future(c.ask("d", max_tokens=200))
                await until(lambda served=served: c.engine("d").served > served)
                if cut:
                    c.api.delete("d")
                else:
                    ending = copy.deepcopy(made)
                    soon = datetime.now(UTC) + timedelta(seconds=0.3)
                    ending["metadata"]["deletionTimestamp"] = soon.isoformat()
                    c.api.put(ending)
                with pytest.raises(aiohttp.ClientError):
                    await asyncio.wait_for(running, 5)
                if not cut:
                    c.api.delete("d")
                    await c.add(pod("d", "decode", 1))
            rows = (await c.admin_get("/books"))["rows"]
            assert [row["status"] for row in rows] == [0, 0]

    asyncio.run(scenario())


def test_only_leaders_of_groups_and_pods_with_a_role_are_engines() -> None:
    async def scenario() -> None:
        worker = pod("w", "decode", 2, labels={"leaderworkerset.sigs.k8s.io/worker-index": "1"})
        plain = pod("plain", "decode", 3)
        plain["metadata"]["labels"] = {"llm-d.ai/role": "prefill", "pod-template-hash": "5d8c"}
        other = pod("other", "decode", 4)
        other["metadata"]["labels"] = {"app": "web"}
        fallback = pod("fallback", "decode", 5)
        del fallback["metadata"]["labels"]["llm-d.ai/role"]
        async with cluster() as c:
            for document in (worker, other):
                c.api.put(document)
            await c.add(plain, fallback)
            assert sorted(c.fleet.hosts) == ["serving/fallback", "serving/plain"]
            assert (c.engine("plain").pod.role, c.engine("plain").pod.revision) == ("prefill", "5d8c")
            assert c.engine("fallback").pod.role == "decode"
            assert (await c.ask("plain"))[0] == 200

    asyncio.run(scenario())


def test_a_watch_that_ends_or_is_too_old_begins_again() -> None:
    async def scenario() -> None:
        async with cluster(pod("a", "decode", 1)) as c:
            for number, error in ((2, False), (3, True)):
                await until(lambda: c.api._watchers)
                c.api.end_watches(error=error)
                c.api._watchers.clear()
                if error:
                    c.api.pops = c.api.pods.pop("a")  # while nobody watched
                await c.add(pod(f"p{number}", "prefill", number))
                assert (await c.ask(f"p{number}"))[0] == 200
            await until(lambda: "serving/a" not in c.fleet.hosts)

    asyncio.run(scenario())


def test_an_address_that_is_taken_is_said_and_tried_again() -> None:
    async def scenario() -> None:
        async with cluster(pod("a", "decode", 1)) as c:
            c.api.put(pod("b", "decode", 1))
            await until(lambda: "serving/b" in c.fleet.problems)
            async with c.client.get(f"{c.admin}/ready") as answer:
                assert answer.status == 200 and "serving/b" in (await answer.json())["problems"]
            c.api.delete("a")
            await until(lambda: c.fleet.hosts["serving/b"].engine)
            assert (await c.ask("b"))[0] == 200 and c.fleet.problems == {}

    asyncio.run(scenario())


def test_arguments_that_no_engine_would_start_with() -> None:
    async def scenario() -> None:
        async with cluster() as c:
            c.api.put(pod("d", "decode", 1, transfer_extra={"kv_lease_duration": "soon"}))
            await until(lambda: "serving/d" in c.fleet.problems)
            assert await refuses(c, c.address("d"))

    asyncio.run(scenario())
