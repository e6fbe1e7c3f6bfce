"""The metric source as one running thing: discovery, scraping, store and API on one event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from aiohttp import web

from deploy.demo.engines.kube import PodFeed
from deploy.demo.metrics.api import Api
from deploy.demo.metrics.discovery import Job, read_jobs
from deploy.demo.metrics.scraping import Scraper
from deploy.demo.metrics.store import Store

Doc = dict[str, Any]
TIDY_S = 10.0
_START_LIMIT_S = 30.0
_SETTLE_S = 0.05  # changes of pods come in swarms


class Source:
    """Everything on the running loop; an async context manager. ``port`` 0 takes a free one.

    ``scrape_configs`` are as in Prometheus' configuration (discovery.py says what is known of them), ``kubeconfig`` is
    where pods are found. Raises ValueError for a configuration that is not understood.
    """

    def __init__(
        self,
        scrape_configs: Sequence[Mapping[str, Any]],
        *,
        kubeconfig: Path | None = None,
        address: str = "127.0.0.1",
        port: int = 0,
        interval_s: float | None = None,
        store: Store | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store or Store()
        self.jobs = read_jobs(scrape_configs, interval_s=interval_s)
        self.scraper = Scraper(self.store, clock)
        self._clock, self._address, self._port = clock, address, port
        self._pods: dict[str, dict[str, Doc]] = {}  # by what is watched, by uid
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        namespaces = watched(self.jobs)
        if namespaces and kubeconfig is None:
            raise ValueError("discovery of pods needs a kubeconfig")
        self._feeds = [self._feed(kubeconfig, each) for each in namespaces if kubeconfig is not None]

    async def __aenter__(self) -> Source:
        self._runner = web.AppRunner(Api(self.store, self.scraper, self._clock).app(), access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._address, self._port)
        await site.start()
        server: Any = site._server
        self.port = int(server.sockets[0].getsockname()[1])
        self._show()
        work = [self._follow(), self._tidy(), *(feed.run() for feed in self._feeds)]
        self._tasks = [asyncio.ensure_future(each) for each in work]
        return self

    async def __aexit__(self, *problem: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.scraper.close()
        await self._runner.cleanup()

    async def failed(self) -> None:
        """Wait until a part ends that should not, and raise what it ended with."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    def _feed(self, kubeconfig: Path, namespace: str) -> PodFeed:
        pods = self._pods.setdefault(namespace, {})

        def replace(documents: list[Doc]) -> None:
            pods.clear()
            pods.update((one["metadata"]["uid"], one) for one in documents)
            self._changed.set()

        def change(kind: str, document: Doc) -> None:
            uid = document["metadata"]["uid"]
            if kind == "DELETED":
                pods.pop(uid, None)
            else:
                pods[uid] = document
            self._changed.set()

        return PodFeed(kubeconfig, namespace, replace=replace, change=change)

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            self._show()
            await asyncio.sleep(_SETTLE_S)

    def _show(self) -> None:
        pods = [pod for watched_pods in self._pods.values() for pod in watched_pods.values()]
        self.scraper.show(job.targets(pods) for job in self.jobs)

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(TIDY_S)
            for _ in self.store.tidy(round(1000 * self._clock())):
                await asyncio.sleep(0)


def watched(jobs: Iterable[Job]) -> list[str]:
    """The namespaces whose pods the jobs need; [""] for all."""
    wanted = [job.namespaces for job in jobs if job.namespaces is not None]
    if any(not names for names in wanted):
        return [""]
    return sorted({name for names in wanted for name in names})


class MetricSource:
    """A `Source` on a thread and a loop of its own, for tests and programs that have no loop; a context manager.

    Arguments are those of `Source`.
    """

    def __init__(self, scrape_configs: Sequence[Mapping[str, Any]] = (), **options: Any) -> None:
        self.url = ""
        self.store: Store = options.setdefault("store", Store())
        self._make = partial(Source, scrape_configs, **options)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="metric-source", daemon=True)
        self._started = threading.Event()
        self._problem: BaseException | None = None
        self._stop: asyncio.Event | None = None

    def start(self) -> MetricSource:
        """Return when it answers. Raises what keeps it from it."""
        self._thread.start()
        if not self._started.wait(_START_LIMIT_S):
            raise TimeoutError("the metric source did not start")
        if self._problem is not None:
            raise self._problem
        return self

    def stop(self) -> None:
        """End it, with its thread."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_START_LIMIT_S)

    def __enter__(self) -> MetricSource:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def load(self, series: Iterable[tuple[Mapping[str, str], Sequence[tuple[int, float | None]]]]) -> None:
        """Put samples into the store: labels with `__name__`, and (unix milliseconds, value) or, for "it ended",
        (unix milliseconds, None)."""
        loaded = list(series)

        async def put() -> None:
            for labels, points in loaded:
                self.store.append(labels, points)

        assert self._loop is not None, "it was not started"
        asyncio.run_coroutine_threadsafe(put(), self._loop).result(60)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as problem:
            self._problem = problem
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with self._make() as source:
            self.url = f"http://127.0.0.1:{source.port}"
            self._started.set()
            await self._stop.wait()
