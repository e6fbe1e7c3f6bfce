"""All engines of a cluster: listeners come and go with their pods."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import aiohttp
from aiohttp import web

from deploy.demo.engines.books import Books
from deploy.demo.engines.clock import Clock
from deploy.demo.engines.engine import Engine
from deploy.demo.engines.faults import FaultList, Rule
from deploy.demo.engines.pods import EnginePod, read_pod
from deploy.demo.engines.serving import Serving

Doc = dict[str, Any]
_MOST_BODY = 16 * 1024 * 1024
_AGAIN_S = 0.25  # real seconds until an address that was taken is tried again
# close() with this option sends a reset, as the kernel does for a process that was killed.
_RESET = struct.pack("ii", 1, 0)


class Host:
    """One pod's engine and its listener.

    A pod that is *ending* takes no new connections but finishes what it began until its deletion deadline; a pod that
    is *away* or gone has its connections reset. A new incarnation is a new engine with new counters.
    """

    def __init__(self, fleet: Fleet, pod: EnginePod) -> None:
        self.pod = pod
        self.engine: Engine | None = None
        self.serving: Serving | None = None
        self.starts = 0
        self._fleet = fleet
        self._listener: asyncio.AbstractServer | None = None
        self._http: web.Server | None = None
        self._wanted = asyncio.Event()
        self._away_until = 0.0  # model seconds
        self._was_ready = ""  # the incarnation that was ready once
        self._gone = False
        self._task = asyncio.ensure_future(self._follow())

    def show(self, pod: EnginePod | None) -> None:
        """The pod changed, or is gone."""
        if pod is None:
            self._gone = True
        else:
            self.pod = pod
        self._wanted.set()

    def crash(self, seconds: float) -> None:
        """Reset all connections and stay away for some model seconds; what starts then is a new engine."""
        self._away_until = self._fleet.clock.now() + seconds
        self._drop()
        self._wanted.set()

    async def finish(self) -> None:
        """Close for good."""
        self._gone = True
        self._wanted.set()
        await self._task

    async def _follow(self) -> None:
        while True:
            self._wanted.clear()
            wait = await self._settle()
            if self._gone:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), wait)

    async def _settle(self) -> float | None:
        """Make the listener what the pod asks for; returns real seconds until the next look, None for no need."""
        pod, engine = self.pod, self.engine
        if self._gone or pod.state == "away":
            self._drop()
            return None
        if pod.state == "ending":
            return self._wind_down()
        if engine is not None and (engine.pod.incarnation, engine.pod.address) != (
            pod.incarnation,
            pod.address,
        ):
            self._drop()
        rest = (self._away_until - self._fleet.clock.now()) * self._fleet.clock.scale
        if rest > 0:
            return rest
        if self._listener is None and not await self._open():
            return _AGAIN_S
        self._mark()
        return None

    async def _open(self) -> bool:
        fleet, pod = self._fleet, self.pod
        try:
            engine = self._make_engine()
        except (ValueError, TypeError, KeyError, AttributeError) as problem:
            # A real engine would exit at once and be restarted in vain.
            fleet.problems[pod.key] = f"arguments cannot be read: {problem!r}"
            return False
        serving = Serving(
            engine, peers=fleet.engine_at, books=fleet.books, client=fleet.client, crash=self._crash_by_fault
        )
        http = web.Server(
            serving.handle, request_factory=_request, handler_cancellation=True, access_log=None
        )
        try:
            self._listener = await asyncio.get_running_loop().create_server(
                http, pod.address, fleet.port, reuse_address=True, backlog=512
            )
        except OSError as problem:
            fleet.problems[pod.key] = str(problem)
            return False
        fleet.problems.pop(pod.key, None)
        self.starts += 1
        self.engine, self.serving, self._http = engine, serving, http
        fleet.addresses[pod.address] = engine
        return True

    def _make_engine(self) -> Engine:
        fleet = self._fleet
        return Engine(
            self.pod,
            clock=fleet.clock,
            faults=fleet.faults,
            peers=fleet.engine_at,
            seed=fleet.seed,
            jitter=fleet.jitter,
            start=self.starts,
        )

    def _mark(self) -> None:
        assert self.serving is not None
        pod = self.pod
        if pod.ready:
            self._was_ready = pod.incarnation
        self.serving.loading = pod.state == "loading" and self._was_ready != pod.incarnation
        self.serving.ready = pod.ready

    def _wind_down(self) -> float | None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            self._close_idle()
        left = _seconds_until(self.pod.deadline)
        if left > 0:
            return left
        self._drop()
        return None

    def _close_idle(self) -> None:
        # Not pre_shutdown() of aiohttp: a connection that was just accepted would then never be answered.
        assert self.serving is not None and self._http is not None
        self.serving.ending = True
        for connection in list(self._http.connections):
            if connection not in self.serving.busy and connection.transport is not None:
                connection.transport.close()

    def _crash_by_fault(self) -> None:
        crash = self.engine.fault("crash") if self.engine else None
        self.crash(float(crash["seconds"]) if crash else 0.0)
        raise asyncio.CancelledError  # the request that it crashed on

    def _drop(self) -> None:
        """Cut everything, as when the process is killed."""
        engine, http = self.engine, self._http
        if self._listener is not None:
            self._listener.close()
        if engine is not None:
            engine.alive = False
            if self._fleet.addresses.get(engine.pod.address) is engine:
                del self._fleet.addresses[engine.pod.address]
        if http is not None:
            for connection in list(http.connections):
                transport = connection.transport
                if transport is not None:
                    opened = transport.get_extra_info("socket")
                    with suppress(OSError):
                        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    transport.abort()
        self._listener = self._http = self.engine = self.serving = None


class Fleet:
    """Every engine pod's host. ``time_scale`` real seconds per model second; see tokens.py for ``jitter``."""

    def __init__(
        self,
        *,
        port: int = 8000,
        seed: int = 0,
        time_scale: float = 1.0,
        jitter: float = 0.0,
        rows: int | None = None,
    ) -> None:
        self.port = port
        self.seed = seed
        self.jitter = jitter
        self.clock = Clock(time_scale)
        self.faults = FaultList()
        self.books = Books(rows) if rows else Books()
        self.addresses: dict[str, Engine] = {}
        self.problems: dict[str, str] = {}
        self.hosts: dict[str, Host] = {}
        self.client: aiohttp.ClientSession
        self._listed: set[str] = set()
        self._settled = False

    async def __aenter__(self) -> Fleet:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
        limit = aiohttp.ClientTimeout(total=None, sock_connect=5)
        self.client = aiohttp.ClientSession(connector=connector, timeout=limit, trust_env=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(host.finish() for host in self.hosts.values()))
        await self.client.close()

    def engine_at(self, address: str) -> Engine | None:
        """The engine that answers on an address now."""
        return self.addresses.get(address)

    def replace(self, namespace: str, documents: Sequence[Doc]) -> None:
        """All pods of a namespace ("" = of the cluster)."""
        pods = {pod.key: pod for pod in map(read_pod, documents) if pod is not None}
        for key in [
            key
            for key in self.hosts
            if key not in pods and key.startswith(f"{namespace}/" if namespace else "")
        ]:
            self._remove(key)
        for pod in pods.values():
            self._show(pod)
        self._listed.add(namespace)

    def change(self, kind: str, document: Doc) -> None:
        """One event of a watch."""
        pod = read_pod(document)
        if pod is None:
            return
        if kind == "DELETED":
            self._remove(pod.key)
        else:
            self._show(pod)

    def has_listed(self, namespaces: Sequence[str]) -> bool:
        """Whether all these namespaces were read once and every pod that should answer does."""
        if not self._settled and self._listed >= set(namespaces):
            open_now = [host for host in self.hosts.values() if host.pod.state in ("up", "loading")]
            self._settled = all(host.engine is not None or host.pod.key in self.problems for host in open_now)
        return self._settled

    def add_fault(self, match: Any, fault: Any) -> Rule:
        """A live fault; a crash without a number of requests happens at once. BadFault as :meth:`FaultList.add`."""
        rule = self.faults.add(match, fault)
        crash = rule.faults.get("crash")
        if crash and not crash["after_requests"]:
            for host in self.hosts.values():
                if rule.finds(host.pod):
                    host.crash(float(crash["seconds"]))
        return rule

    def _show(self, pod: EnginePod) -> None:
        host = self.hosts.get(pod.key)
        if host is None:
            self.hosts[pod.key] = Host(self, pod)
        elif host.pod != pod:
            host.show(pod)

    def _remove(self, key: str) -> None:
        host = self.hosts.pop(key, None)
        self.problems.pop(key, None)
        if host is not None:
            host.show(None)


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=_MOST_BODY)


def _seconds_until(deadline: str) -> float:
    try:
        return datetime.fromisoformat(deadline).timestamp() - time.time()
    except ValueError:
        return 0.0
