"""Steady load: requests of clients through a gateway, by pool, as random as a seed says. On a thread of its own."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType

import aiohttp

_LIMIT = aiohttp.ClientTimeout(total=20)
_WORDS = (
    "the cluster serves prefill decode tokens row after row while people ask what time it is there".split()
)
_SHORT = 0.1  # share of prompts of a few words


@dataclass(frozen=True)
class Stream:
    """Requests for one model: headers that lead there, and how many a second."""

    model: str
    headers: Mapping[str, str]
    rate: float


class SteadyLoad:
    """``with SteadyLoad(url, streams, seed=1):`` sends until the block ends. Failures are the world's, not ours."""

    def __init__(self, url: str, streams: Sequence[Stream], *, seed: int) -> None:
        self._url = f"{url}/v1/completions"
        self._streams = [stream for stream in streams if stream.rate > 0]
        self._seed = seed
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def __enter__(self) -> SteadyLoad:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(5)

    def _run(self) -> None:
        self._loop.run_until_complete(self._send_all())
        self._loop.close()

    async def _send_all(self) -> None:
        async with aiohttp.ClientSession(timeout=_LIMIT, trust_env=False) as client:
            tasks = [
                asyncio.ensure_future(self._send(client, stream, random.Random(f"{self._seed}/{number}")))
                for number, stream in enumerate(self._streams)
            ]
            await self._stop.wait()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, client: aiohttp.ClientSession, stream: Stream, chance: random.Random) -> None:
        asked: set[asyncio.Task[None]] = set()
        try:
            while True:
                await asyncio.sleep(chance.expovariate(stream.rate))
                one = asyncio.ensure_future(self._ask(client, stream, prompt(chance), chance.randint(4, 12)))
                asked.add(one)
                one.add_done_callback(asked.discard)
        finally:
            for one in asked:
                one.cancel()

    async def _ask(self, client: aiohttp.ClientSession, stream: Stream, text: str, tokens: int) -> None:
        body = {"model": stream.model, "prompt": text, "max_tokens": tokens}
        with suppress(aiohttp.ClientError, TimeoutError, OSError):
            async with client.post(self._url, json=body, headers=stream.headers) as answer:
                await answer.read()


def prompt(chance: random.Random) -> str:
    """A few words, or a few hundred."""
    words = chance.randint(3, 8) if chance.random() < _SHORT else chance.randint(60, 300)
    return " ".join(chance.choices(_WORDS, k=words))
