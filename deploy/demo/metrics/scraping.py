"""Scraping: each target at its own pace, from the first time that discovery names it until it does no more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from zlib import crc32

import aiohttp

from deploy.demo.metrics.discovery import Wanted
from deploy.demo.metrics.exposition import Malformed
from deploy.demo.metrics.pages import Page
from deploy.demo.metrics.store import Store, TooMany

MOST_BYTES = 16 << 20
_HEADERS = {"Accept": "text/plain;version=0.0.4", "User-Agent": "lockstep-demo-metrics"}
REPORTED = (
    "up",
    "scrape_duration_seconds",
    "scrape_samples_scraped",
    "scrape_samples_post_metric_relabeling",
    "scrape_series_added",
)


class Target:
    """One target that is scraped, and how its last scrape went."""

    def __init__(self, wanted: Wanted, store: Store) -> None:
        self.wanted = wanted
        self.page = Page(store, store.timeline(("target", wanted.labels)), dict(wanted.labels))
        self.health, self.problem = "unknown", ""
        self.scraped_at, self.took_s = 0.0, 0.0

    async def run(self, client: aiohttp.ClientSession, clock: Callable[[], float]) -> None:
        """Scrape until cancelled, at moments that differ from target to target; then everything has ended."""
        interval = self.wanted.interval_s
        loop = asyncio.get_running_loop()
        share = crc32(repr(self.wanted.key).encode()) / 2**32
        due = loop.time() + share * min(interval, 1.0)
        try:
            while True:
                await asyncio.sleep(max(0.0, due - loop.time()))
                await self.scrape(client, clock)
                due += interval * max(1, -(-(loop.time() - due) // interval))
        finally:
            self.end(clock())

    async def scrape(self, client: aiohttp.ClientSession, clock: Callable[[], float]) -> None:
        """One scrape; its samples are of the moment at which it began."""
        began, at = time.monotonic(), round(1000 * clock())
        added = 0
        try:
            text = await self._fetch(client)
            added = self.page.take(text, at)
            self.health, self.problem = "up", ""
        except (aiohttp.ClientError, TimeoutError, OSError, Malformed, TooMany, UnicodeError) as problem:
            self.health, self.problem = "down", _said(problem)
            self.page.fail(at)
        self.scraped_at, self.took_s = at / 1000, time.monotonic() - began
        up = float(self.health == "up")
        samples = up * self.page.samples
        with suppress(TooMany):
            self.page.report(
                dict(zip(REPORTED, (up, self.took_s, samples, samples, float(added)), strict=True))
            )

    def end(self, now: float) -> None:
        """It is a target no more: its series end."""
        self.page.fail(round(1000 * now))
        self.page.end_report()

    async def _fetch(self, client: aiohttp.ClientSession) -> str:
        limit = aiohttp.ClientTimeout(total=self.wanted.timeout_s)
        async with client.get(self.wanted.url, timeout=limit, allow_redirects=True) as answer:
            if answer.status != 200:
                raise Malformed(f"server returned HTTP status {answer.status} {answer.reason}")
            if answer.content_type != "text/plain":
                # Prometheus 3 does not guess either.
                raise Malformed(f"a page of type {answer.headers.get('Content-Type', '')!r} is not read")
            body = bytearray()
            async for piece in answer.content.iter_any():
                body += piece
                if len(body) > MOST_BYTES:
                    raise Malformed("the page is too large")
            return body.decode()


class Scraper:
    """Keeps one task for each target that is wanted."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self.targets: dict[tuple[object, ...], Target] = {}
        self._store, self._clock = store, clock
        self._tasks: dict[tuple[object, ...], asyncio.Task[None]] = {}
        self._client: aiohttp.ClientSession | None = None

    def show(self, wanted: Iterable[Mapping[tuple[object, ...], Wanted]]) -> None:
        """The targets of all jobs, as they are now. A target whose labels are what they were goes on as it is."""
        now = {key: one for job in wanted for key, one in job.items()}
        for key in self.targets.keys() - now.keys():
            self._tasks.pop(key).cancel()
            del self.targets[key]
        for key, one in now.items():
            if key in self.targets:
                self.targets[key].wanted = one
                continue
            target = self.targets[key] = Target(one, self._store)
            self._tasks[key] = asyncio.ensure_future(target.run(self._session(), self._clock))

    async def close(self) -> None:
        """End all."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.close()

    def _session(self) -> aiohttp.ClientSession:
        if self._client is None:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
            self._client = aiohttp.ClientSession(connector=connector, headers=_HEADERS, trust_env=False)
        return self._client


def _said(problem: Exception) -> str:
    if isinstance(problem, TimeoutError):
        return "context deadline exceeded"
    return str(problem) or type(problem).__name__
