"""Reading the metrics pages of the pool's endpoints: how many requests wait there, how full the KV cache is.

The llm-d router reads every 50 ms; this one never more than once a second, because hundreds of simulated endpoints
share a machine with it.
"""

from __future__ import annotations

import asyncio
import re
import time

import aiohttp

from deploy.demo.router.router import Router

FLOOR_S = 1.0
AT_ONCE = 16
_LIMIT = aiohttp.ClientTimeout(total=2)
_WAITING = re.compile(
    rb"^(?:vllm:num_requests_waiting|sglang:num_queue_reqs)(?:\{[^}\n]*\})? ([0-9.eE+-]+)", re.MULTILINE
)
_USAGE = re.compile(
    rb"^(?:vllm:kv_cache_usage_perc|sglang:token_usage)(?:\{[^}\n]*\})? ([0-9.eE+-]+)", re.MULTILINE
)


def read_page(page: bytes) -> tuple[float, float] | None:
    """(waiting requests, share of KV cache in use) of a page, over all its engines; None when it shows neither."""
    waiting = [float(one) for one in _WAITING.findall(page)]
    usage = [float(one) for one in _USAGE.findall(page)]
    if not waiting and not usage:
        return None
    return sum(waiting), max(usage, default=0.0)


async def keep_reading(router: Router, interval_s: float) -> None:
    """Read all pages, again and again; an endpoint that does not answer just becomes stale."""
    gate = asyncio.Semaphore(AT_ONCE)
    async with aiohttp.ClientSession(timeout=_LIMIT) as session:

        async def one(address: str) -> None:
            async with gate:
                try:
                    async with session.get(f"http://{address}/metrics") as answer:
                        found = read_page(await answer.read()) if answer.status == 200 else None
                except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
                    return
            if found is not None:
                router.scraped.pages[address] = (time.monotonic(), *found)

        while True:
            began = time.monotonic()
            addresses = {endpoint.address for endpoint in router.fleet.endpoints()}
            await asyncio.gather(*(one(address) for address in addresses))
            for gone in router.scraped.pages.keys() - addresses:
                del router.scraped.pages[gone]
            await asyncio.sleep(max(0.05, max(interval_s, FLOOR_S) - (time.monotonic() - began)))
