"""Envoy as a child process: started, given its files, asked what it has taken up, ended."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from deploy.demo.gateway import xds
from deploy.demo.gateway.front import FrontEnded, NotTakenUp
from deploy.demo.gateway.listeners import Listening, files_source, make_listeners
from deploy.demo.gateway.routes import Plan
from deploy.demo.gateway.world import Key, Pool

Doc = dict[str, Any]

# A request that waits in a router's queue still needs its pool's clusters when the last route to it has gone.
_KEEP_POOL_S = 1000.0
_TAKE_UP_S = 10.0
_END_S = 5.0
# Envoy shows no version of a list that has always been empty.
_NOTHING = xds.document([])[1]
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


class Envoy:
    """One Envoy below ``folder``, which must be empty and private: the probe secret is in its files."""

    def __init__(self, binary: Path, folder: Path, listening: Listening) -> None:
        self._binary = binary
        self._folder = folder
        self._listening = listening
        self._written: dict[str, str] = {}
        self._gone: dict[Key, tuple[Pool, float]] = {}
        self._pools: dict[Key, Pool] = {}
        self._shown: dict[str, str] = {}
        self._accepting = False
        self._process: asyncio.subprocess.Process | None = None
        self._socket = folder / "admin.sock"

    # --- life

    async def start(self, plan: Plan) -> None:
        """Write the first configuration, start the program, and return when it serves it."""
        wanted = self._write_clusters(plan) | self._write_routes(plan)
        bootstrap = self._folder / "bootstrap.json"
        bootstrap.write_text(json.dumps(self._bootstrap()))
        self._process = await asyncio.create_subprocess_exec(
            self._binary,
            *("--config-path", str(bootstrap), "--concurrency", "1", "--disable-hot-restart"),
            # Warnings, but not one for every request that finds no router or engine.
            *("--log-level", "warning", "--component-log-level", "main:error,ext_proc:error,upstream:error"),
            *("--file-flush-interval-msec", "200", "--drain-time-s", "60"),
            stdin=asyncio.subprocess.DEVNULL,
            preexec_fn=_end_with_parent(os.getpid()),
        )
        await self._taken_up(wanted)
        await self._accepts(plan)

    async def ended(self) -> None:
        """Wait for the end of the program, and raise FrontEnded then."""
        assert self._process is not None
        code = await self._process.wait()
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
        raise FrontEnded(f"envoy ended {how}")

    async def stop(self) -> None:
        """End the program and wait until it is gone."""
        if self._process is None or self._process.returncode is not None:
            return
        self._process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _END_S)
            return
        self._process.kill()
        await self._process.wait()

    # --- configuration

    async def apply(self, plan: Plan) -> None:
        """Give Envoy a plan and return when it serves it: clusters first, then the routes to them.

        Raises NotTakenUp.
        """
        await self._taken_up(self._write_clusters(plan))
        await self._taken_up(self._write_routes(plan))
        await self._accepts(plan)

    def _write_clusters(self, plan: Plan) -> dict[str, str]:
        """Write clusters and router addresses; the versions that Envoy must show, by file."""
        now = time.monotonic()
        for key in self._pools.keys() - plan.pools.keys():
            self._gone[key] = (self._pools[key], now + _KEEP_POOL_S)
        self._pools = dict(plan.pools)
        self._gone = {
            key: (pool, end) for key, (pool, end) in self._gone.items() if end > now and key not in plan.pools
        }
        kept = self._pools | {key: pool for key, (pool, _) in self._gone.items()}
        # In one order always: Envoy shows a new version only where a cluster has changed.
        pools = [kept[key] for key in sorted(kept)]
        wanted = {}
        for pool in pools:
            self._put(xds.endpoints_file(pool), xds.make_endpoints(pool))
            wanted[xds.endpoints_file(pool)] = ",".join(pool.routers)  # Envoy shows no versions of these
        wanted["cds.json"] = self._put("cds.json", xds.make_clusters(pools, self._folder))
        for name in [name for name in self._written if name.startswith("eds.") and name not in wanted]:
            del self._written[name]
            (self._folder / name).unlink()
        return wanted

    def _write_routes(self, plan: Plan) -> dict[str, str]:
        """Write routes and listeners; the versions that Envoy must show, by file."""
        listeners = make_listeners(self._listening, self._folder) if plan.serving else []
        routes = {
            f"{name}.json": self._put(f"{name}.json", xds.make_routes(plan, name))
            for name in ("public", "probe")
        }
        wanted = {"lds.json": self._put("lds.json", listeners)}
        return wanted | routes if plan.serving else wanted  # without listeners nobody asks for routes

    def _put(self, name: str, resources: list[Doc]) -> str:
        text, version = xds.document(resources)
        if self._written.get(name) != version:
            fresh = self._folder / f".{name}"
            fresh.write_text(text)
            fresh.rename(self._folder / name)  # Envoy looks when a file is moved here
            self._written[name] = version
        return version

    def _bootstrap(self) -> Doc:
        source = {f"{kind}_config": files_source(self._folder / f"{kind}.json") for kind in ("lds", "cds")}
        return {
            "node": {"id": "gateway", "cluster": "gateway"},
            "admin": {"address": {"pipe": {"path": str(self._socket), "mode": 0o600}}},
            "dynamic_resources": source,
        }

    # --- asking

    async def _taken_up(self, wanted: Mapping[str, str]) -> None:
        """Wait until Envoy shows these versions."""
        if wanted.items() <= self._shown.items():
            return
        end = time.monotonic() + _TAKE_UP_S
        while True:
            versions, problems = await self._active()
            late = [name for name, version in wanted.items() if versions.get(name) != version]
            if not late:
                self._shown = versions
                return
            if problems:
                raise NotTakenUp("; ".join(problems))
            if time.monotonic() > end:
                raise NotTakenUp(f"envoy has not taken up {', '.join(late)} within {_TAKE_UP_S:.0f} s")
            await asyncio.sleep(0.02)

    async def _accepts(self, plan: Plan) -> None:
        """Wait until both listeners take connections: their threads begin a moment after the versions show."""
        if not plan.serving or self._accepting:
            self._accepting = plan.serving
            return
        where = self._listening
        end = time.monotonic() + _TAKE_UP_S
        for address, port in ((where.address, where.port), (where.probe_address, where.probe_port)):
            while not await _connects(address, port):
                if time.monotonic() > end:
                    raise NotTakenUp(f"envoy does not listen at {address}:{port}")
                await asyncio.sleep(0.02)
        self._accepting = True

    async def _active(self) -> tuple[dict[str, str], list[str]]:
        """What Envoy serves, as versions by file, and what it refused."""
        assert self._process is not None
        if self._process.returncode is not None:
            await self.ended()
        try:
            dump = json.loads(await self._ask("GET", "/config_dump?include_eds"))
        except (aiohttp.ClientError, TimeoutError):
            return {}, []  # it has only just started
        return read_dump(dump)

    async def reopen_log(self) -> None:
        """Have Envoy go on in a new access log."""
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            await self._ask("POST", "/reopen_logs")

    async def _ask(self, method: str, path: str) -> str:
        """One call of Envoy's admin interface."""
        timeout = aiohttp.ClientTimeout(total=5)
        connector = aiohttp.UnixConnector(str(self._socket))
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            async with session.request(method, f"http://envoy{path}") as answer:
                return await answer.text()


def read_dump(dump: Doc) -> tuple[dict[str, str], list[str]]:
    """Versions by file, and refusals, in the answer of /config_dump?include_eds."""
    versions: dict[str, str] = {}
    problems: list[str] = []
    for part in dump["configs"]:
        kind = part["@type"].rpartition(".")[2]
        if kind == "ClustersConfigDump" and not part.get("dynamic_warming_clusters"):
            versions["cds.json"] = part.get("version_info", _NOTHING)
        elif kind == "ListenersConfigDump":
            listeners = part.get("dynamic_listeners", [])
            problems += [
                f"{each['name']}: {each['error_state']['details']}"
                for each in listeners
                if "error_state" in each
            ]
            if all("warming_state" not in each for each in listeners):
                versions["lds.json"] = part.get("version_info", _NOTHING)
        elif kind == "RoutesConfigDump":
            for each in part.get("dynamic_route_configs", []):
                versions[f"{each['route_config']['name']}.json"] = each.get("version_info", "")
        elif kind == "EndpointsConfigDump":
            for each in part.get("dynamic_endpoint_configs", []):
                kind, _, pool = each["endpoint_config"]["cluster_name"].partition(":")
                if kind == "router":
                    versions[f"eds.{pool.replace('/', '.')}.json"] = _addresses(each["endpoint_config"])
    return versions, problems


def _addresses(assignment: Doc) -> str:
    hosts = [host for part in assignment.get("endpoints", []) for host in part.get("lb_endpoints", [])]
    places = [host["endpoint"]["address"]["socket_address"] for host in hosts]
    return ",".join(sorted(f"{place['address']}:{place['port_value']}" for place in places))


async def _connects(address: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(address, port)
    except OSError:
        return False
    writer.close()
    return True


def _end_with_parent(parent: int) -> Any:
    """What the child does before it becomes Envoy: ask for SIGKILL when our process ends, however it does."""

    def ask() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended just now
            os._exit(1)

    return ask
