"""Tiny HTTP servers that stand for decode pods, each at a loopback address of its own, all in one thread."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from aiohttp import web


@dataclass
class Engines:
    """Addresses and what they were asked. A POST is answered in pieces where its body asks for a stream."""

    net: str
    port: int
    seen: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    waiting: float = 0.0
    crashed: bool = False
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _release: asyncio.Event = field(default_factory=asyncio.Event)

    def address(self, index: int) -> str:
        """The address of one engine."""
        return f"{self.net}.{index}"

    def let_go(self) -> None:
        """Send the second piece of every stream."""
        self.loop.call_soon_threadsafe(self._release.set)

    def crash(self) -> None:
        """Reset the connection of every stream."""
        self.crashed = True
        self.let_go()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request, and remember it."""
        assert request.transport is not None
        here = request.transport.get_extra_info("sockname")[0]
        if request.path == "/metrics":
            return web.Response(text=f'vllm:num_requests_waiting{{engine="0"}} {self.waiting}\n')
        body = await request.read()
        self.seen.append((here, {key.lower(): value for key, value in request.headers.items()}, body))
        if b'"stream"' not in body:
            return web.json_response({"served_by": here})
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        await answer.write(b"data: 1\n\n")
        await self._release.wait()
        if self.crashed:
            request.transport.abort()
            return answer
        await answer.write(b"data: 2\n\n")
        return answer


def own_net() -> str:
    """Three bytes of 127.0.0.0/8 that no other test process uses (127.1 to 127.250 belong to rigs and gateways)."""
    return f"127.254.{os.getpid() % 254 + 1}"


@contextmanager
def running_engines(port: int, count: int) -> Iterator[Engines]:
    """Engines at the first addresses of this process's net, all at one port."""
    engines = Engines(own_net(), port)
    loop = engines.loop

    async def start() -> web.AppRunner:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", engines.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.2)
        await runner.setup()
        for index in range(1, count + 1):
            await web.TCPSite(runner, engines.address(index), port).start()
        return runner

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    try:
        yield engines
    finally:
        engines.let_go()
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
