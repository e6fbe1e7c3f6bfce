"""One running emulator: started, used, disturbed and stopped from Python, with the face of the rig."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from aiohttp import web

from deploy.demo.emulator import below
from deploy.demo.emulator.accounts import Accounts
from deploy.demo.emulator.admin import drop_watches, forget
from deploy.demo.emulator.autoscalers import Autoscalers
from deploy.demo.emulator.faults import Fault
from deploy.demo.emulator.furnishing import furnish, renew_identity
from deploy.demo.emulator.garbage import Collector
from deploy.demo.emulator.namespaces import Namespaces
from deploy.demo.emulator.parts import Part
from deploy.demo.emulator.server import Server
from deploy.demo.emulator.store import Store
from deploy.rig.api import Api
from deploy.rig.identities import IDENTITIES, Credentials, Identity, issue
from deploy.rig.nodes import NodePool

Doc = dict[str, Any]
T = TypeVar("T")
APISERVER = "apiserver"
_LIMIT_S = 30.0


class Emulator:
    """A Kubernetes API of its own: ``with Emulator() as emulator: emulator.apply(...)``.

    ``nodes`` pools of machines · ``identities`` users besides the rig's · ``parts`` controllers to run beside those of
    namespaces, of autoscalers and the garbage collector · ``newer_sets`` True serves DisaggregatedSets as newer
    managers do (slices, role scalers) · ``logs`` gives the text of pods' logs · ``folder`` where trust/ goes (without
    it a temporary folder) · ``port`` 0 for a free one · ``seed`` for UIDs and generated names that can be repeated.
    """

    def __init__(
        self,
        *,
        nodes: NodePool | Sequence[NodePool] | None = None,
        identities: Sequence[Identity] = (),
        parts: Sequence[Part] = (),
        newer_sets: bool = False,
        logs: below.Logs = below.no_logs,
        folder: Path | None = None,
        port: int = 0,
        seed: int | None = None,
        store: Store | None = None,
    ) -> None:
        self._pools = (
            [NodePool()] if nodes is None else [nodes] if isinstance(nodes, NodePool) else list(nodes)
        )
        self._identities = (*IDENTITIES, *identities)
        self._parts: tuple[Part, ...] = (Collector(), Namespaces(), Autoscalers(), *parts)
        self._newer_sets = newer_sets
        self._logs = logs
        self._folder = folder
        self._port = port
        self.store = store or Store(seed=seed, newer_sets=newer_sets)
        self._clients: dict[str, Api] = {}
        self._dir: Path | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._runner: web.AppRunner | None = None
        self._site: web.SockSite | None = None
        self._api: Server | None = None
        self._credentials: Credentials | None = None

    # --- life

    def start(self) -> Emulator:
        """Start it; returns when it answers and is furnished."""
        self._dir = self._folder or Path(tempfile.mkdtemp(prefix="lockstep-emulator-"))
        listening = _listen(self._port)
        self._port = listening.getsockname()[1]
        self._credentials = issue(self._dir / "trust", self._identities, self.server)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="emulator", daemon=True)
        self._thread.start()
        try:
            self._await(self._begin(listening))
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End it; safe to call twice."""
        loop, thread = self._loop, self._thread
        if loop is not None and thread is not None:
            self._await(self._end())
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_LIMIT_S)
            loop.close()
        self._loop = self._thread = None
        self._clients.clear()
        if self._dir is not None and self._folder is None:
            shutil.rmtree(self._dir, ignore_errors=True)
        self._dir = None

    def __enter__(self) -> Emulator:
        return self if self._loop is not None else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- what it is

    @property
    def server(self) -> str:
        """The URL."""
        return f"https://127.0.0.1:{self._port}"

    @property
    def dir(self) -> Path:
        """The folder: trust/kubeconfig/."""
        if self._dir is None:
            raise RuntimeError("this emulator is not started")
        return self._dir

    @property
    def api(self) -> Server:
        """The server itself; to be used on its loop (see :meth:`call`)."""
        if self._api is None:
            raise RuntimeError("this emulator is not started")
        return self._api

    @property
    def lws_has_slices(self) -> bool:
        """Whether DisaggregatedSets have ``spec.slices`` here."""
        return self._newer_sets

    def kubeconfig(self, name: str = "admin") -> Path:
        """The kubeconfig file of an identity; KeyError for an unknown one."""
        if name not in {identity.name for identity in self._identities}:
            raise KeyError(name)
        assert self._credentials is not None
        return self._credentials.kubeconfig(name)

    def client(self, name: str = "admin") -> Api:
        """A client as one of the identities."""
        if name not in self._clients:
            self._clients[name] = Api(self.kubeconfig(name))
        return self._clients[name]

    def apply(self, docs: str | Doc | Iterable[Doc]) -> list[Doc]:
        """Server-side apply as admin: YAML text, one document or several."""
        return self.client().apply(docs)

    def call(self, function: Callable[[], T]) -> T:
        """Run a function on the emulator's loop, where the store may be used, and return what it returns."""

        async def run() -> T:
            return function()

        return self._await(run())

    def gone(self) -> str | None:
        """The name of a part that should run but has ended, or None."""
        states = self.call(lambda: self.api.parts.states())
        return next((name for name, state in states.items() if state == "stopped"), None)

    # --- faults

    def add_fault(self, **fault: Any) -> str:
        """Let calls go wrong (see ``faults``): ``add_fault(do="status", code=429, verbs=["patch"])``; its id."""
        return self.call(lambda: self.api.faults.add(Fault(**fault)))

    def remove_fault(self, name: str) -> None:
        """Take one away."""
        self.call(lambda: self.api.faults.remove(name))

    def clear_faults(self) -> None:
        """Take all away."""
        self.call(lambda: self.api.faults.clear())

    def drop_watches(self, resources: Sequence[str] = (), users: Sequence[str] = ()) -> int:
        """Break open watches, all or some; returns how many."""
        return self.call(lambda: drop_watches(self.api, list(resources), list(users)))

    def forget_history(self, resources: Sequence[str] = ()) -> None:
        """Make versions and page tokens from before now too old (410), for all kinds or some."""
        self.call(lambda: forget(self.api, list(resources)))

    def delay_policies(self, lag_s: float) -> None:
        """Let admission policies and their parameters take effect that much later."""
        self.call(lambda: setattr(self.api.policies, "lag_s", lag_s))

    def break_webhooks(self) -> None:
        """The manager's webhooks do not answer: writes to sets fail."""
        self.call(lambda: setattr(self.api.webhooks, "up", False))

    def mend_webhooks(self) -> None:
        """Undo :meth:`break_webhooks`."""
        self.call(lambda: setattr(self.api.webhooks, "up", True))

    def stop_apiserver(self) -> None:
        """Nothing listens any more and every connection is broken; objects and parts stay."""
        self._await(self._close())

    def start_apiserver(self) -> None:
        """Listen again, on the same port.

        As with a real server, what was kept in memory is lost, and the first thing is a write of its own (its
        identity Lease): watches from before get 410 and must list again.
        """
        self.call(lambda: renew_identity(self.store))
        self._await(self._open(_listen(self._port)))

    def restart_apiserver(self) -> None:
        """Stop and start."""
        self.stop_apiserver()
        self.start_apiserver()

    def pause(self, part: str) -> None:
        """Hold a part by name: "apiserver" then takes connections and answers nothing, as after SIGSTOP."""
        self.call(self.api.pace.pause if part == APISERVER else lambda: self.api.parts.pause(part))

    def resume(self, part: str) -> None:
        """Let it go on."""
        self.call(self.api.pace.resume if part == APISERVER else lambda: self.api.parts.resume(part))

    def stop_part(self, part: str) -> None:
        """End a part."""
        self._await(self.api.parts.stop(part))

    def start_part(self, part: str) -> None:
        """Start it again; it begins by listing."""
        self.call(lambda: self.api.parts.start(part))

    def add_part(self, part: Part) -> None:
        """Run one more part."""
        self.call(lambda: self.api.parts.add(part))

    # --- on the loop

    async def _begin(self, listening: socket.socket) -> None:
        assert self._credentials is not None
        accounts = Accounts.read(self._credentials.token_file)
        self._api = Server(self.store, accounts, logs=self._logs)
        furnish(self.store, self._identities, self._pools)
        for part in self._parts:
            self._api.parts.add(part)
        await self._open(listening)

    async def _open(self, listening: socket.socket) -> None:
        assert self._credentials is not None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._credentials.serving_certificate, self._credentials.serving_key)
        # A client that goes away ends what is done for it: a watch nobody reads, a call that hangs by a fault.
        self._runner = web.AppRunner(
            self.api.application(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await self._runner.setup()
        self._site = web.SockSite(self._runner, listening, ssl_context=context)
        await self._site.start()

    async def _close(self) -> None:
        if self._runner is not None:
            runner, self._runner = self._runner, None
            self.api.streams.drop()
            if runner.server is not None:
                for connection in list(runner.server.connections):
                    if connection.transport is not None:
                        connection.transport.abort()
            await runner.cleanup()

    async def _end(self) -> None:
        if self._api is not None:
            self._api.pace.resume()
            await self._close()
            await self._api.parts.stop_all()

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            work.close()
            raise RuntimeError("this emulator is not started")
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(_LIMIT_S)


def _listen(port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    made.listen(128)
    return made
