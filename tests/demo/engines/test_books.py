"""The books: every request once, whatever became of it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import aiohttp
from hypothesis import given
from hypothesis import strategies as some

from deploy.demo.engines.books import Books
from tests.demo.engines.cluster import cluster, pod

PROMPT = "the quick brown fox " * 10


def test_each_request_is_in_the_books_once_under_concurrent_load() -> None:
    """Answers, refusals, failing pairs, hanging up, a crash in the middle: rows are what clients saw."""

    async def scenario() -> None:
        revisions = {"p0": "old", "p1": "new", "d0": "old", "d1": "new"}
        pods = [
            pod(n, "prefill" if n[0] == "p" else "decode", i + 1, revision=r)
            for i, (n, r) in enumerate(revisions.items())
        ]
        async with cluster(*pods) as c:
            await c.fault({"pair": ["new", "old"]}, incompatible_pair={})
            await c.fault({"pair": ["old", "new"]}, corrupt_pair={"fraction": 1.0})
            await c.fault({"pod": "d1"}, refuse={"share": 0.2})
            chance = random.Random(3)
            seen: dict[str, tuple[str, str, int]] = {}
            turns = asyncio.Semaphore(40)

            async def one(number: int) -> None:
                name, via = chance.choice(["d0", "d1"]), chance.choice(["p0", "p1", ""])
                request_id = f"request-{number}"
                headers = {
                    "x-request-id": request_id,
                    "x-llm-d-inference-objective": "gold" if number % 2 else "probe",
                }
                hang_up = number % 10 == 0
                status = 0
                try:
                    async with turns:
                        call = c.ask(name, f"{number} {PROMPT}", via=via, headers=headers, max_tokens=8)
                        status, _ = await asyncio.wait_for(call, 0.002 if hang_up else 30)
                except (TimeoutError, aiohttp.ClientError):
                    pass
                seen[request_id] = (name, via, status)

            async def crash() -> None:
                await asyncio.sleep(0.2)
                await c.fault({"pod": "d0"}, crash={"seconds": 1.0})

            await asyncio.gather(crash(), *(one(number) for number in range(600)))
            rows = (await c.admin_get("/books?limit=10000"))["rows"]
            ids = Counter(row["request_id"] for row in rows)
            assert set(ids.values()) == {1}
            assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
            for row in rows:
                name, via, status = seen[row["request_id"]]
                assert (row["decode"], row["decode_revision"]) == (name, revisions[name])
                if status:  # who hung up does not know what the engine made of it
                    assert row["status"] == status
                if row["prefill"]:
                    assert (row["prefill"], row["prefill_revision"]) == (via, revisions[via])
                assert row["mixed"] == bool(row["prefill"] and revisions[via] != revisions[name])
                assert row["corrupted"] == (row["status"] == 200 and (via, name) == ("p0", "d1"))
            answered = {request_id for request_id, (_, _, status) in seen.items() if status}
            assert answered <= ids.keys() and len(answered) > 400
            summary = await c.admin_get("/books/summary")
            assert summary["requests"] == len(rows)
            assert summary["by_status"] == {
                str(k): v for k, v in Counter(row["status"] for row in rows).items()
            }
            pairs = Counter(
                (row["prefill_revision"], row["decode_revision"], row["status"], row["kv"]) for row in rows
            )
            names = ("prefill_revision", "decode_revision", "status", "kv")
            assert {tuple(row[n] for n in names): row["count"] for row in summary["by_pair"]} == pairs
            mixed = [row for row in rows if row["mixed"]]
            assert summary["mixed"] == {
                "all": len(mixed),
                "ok": sum(row["status"] == 200 for row in mixed),
                "corrupted": sum(row["corrupted"] for row in mixed),
            }
            objectives = {(row["objective"], row["status"]): row["count"] for row in summary["by_objective"]}
            assert objectives == Counter((row["objective"], row["status"]) for row in rows)
            # Nothing hangs on: no engine has anybody left.
            for name in ("p1", "d1", "p0", "d0"):
                gauges = await c.metrics(name)
                assert gauges["vllm:num_requests_running", ""] == gauges["vllm:num_requests_waiting", ""] == 0

    asyncio.run(scenario())


def _enter(books: Books, number: int) -> None:
    books.enter(
        request_id=str(number),
        set="s",
        role="decode",
        decode="d",
        decode_revision="r",
        prefill="",
        prefill_revision="",
        mixed=False,
        objective=f"o{number}",
        fairness_id="",
        asked_revision="",
        status=200,
        kv="local",
        prompt_tokens=1,
        tokens=1,
        corrupted=False,
        seconds=0.1,
        error="",
    )


@given(some.integers(1, 30), some.lists(some.integers(1, 20), max_size=12), some.integers(1, 7))
def test_a_reader_that_pages_sees_every_row_once_or_is_told_what_it_missed(
    size: int, bursts: list[int], limit: int
) -> None:
    books, since, got, missed, entered = Books(size), 0, [], 0, 0
    for burst in bursts:
        for _ in range(burst):
            entered += 1
            _enter(books, entered)
        page = books.page(since, limit)
        got += [row["seq"] for row in page["rows"]]
        missed += page["missed"]
        since = page["next"]
    while (page := books.page(since, limit))["rows"]:
        got += [row["seq"] for row in page["rows"]]
        missed += page["missed"]
        since = page["next"]
    assert got == sorted(set(got)) and len(got) + missed == entered
    assert books.summary()["requests"] == entered


def test_a_reset_forgets_counts_and_rows_but_no_number_comes_twice() -> None:
    books = Books(100)
    for number in range(3):
        _enter(books, number)
    books.reset()
    assert books.summary()["requests"] == 0
    assert books.page(1, 10) == {"rows": [], "next": 3, "last": 3, "missed": 0}
    _enter(books, 9)
    assert [row["seq"] for row in books.page(0, 10)["rows"]] == [4]


def test_objectives_that_anybody_invents_do_not_fill_memory() -> None:
    books = Books(10)
    for number in range(1000):
        _enter(books, number)
    assert len(books.summary()["by_objective"]) == 200 and books.summary()["requests"] == 1000
