"""The loop: the cluster's objects become a plan, the plan becomes what is served, and statuses say so."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from deploy.demo.gateway.cluster import Access, ApiFailure, Cluster, Mirror
from deploy.demo.gateway.front import Front, NotTakenUp
from deploy.demo.gateway.listeners import Listening
from deploy.demo.gateway.names import GATEWAY_GROUP, POOL_GROUP
from deploy.demo.gateway.routes import Condition, Plan, make_plan
from deploy.demo.gateway.status import Served, Write, writes
from deploy.demo.gateway.world import Key, Pod, Service, World, read_pod, read_service

Doc = dict[str, Any]

_LOG_LOOK_S = 1.0
_LOGS_KEPT = 3
# Changes that come together (a new template touches many pods) become one configuration.
_GATHER_S = 0.03
_RETRY_S = 1.0


@dataclass(frozen=True)
class Task:
    """What one controller serves: a gateway by (namespace, name); the access log is turned at ``log_bytes``."""

    gateway: Key
    listening: Listening
    log_bytes: int = 16 * 1024 * 1024


class Controller:
    """Follows one cluster for one gateway and runs what serves its requests."""

    def __init__(self, task: Task, front: Front) -> None:
        self._task = task
        self._front = front
        self._changed = asyncio.Event()
        self._status_wanted = asyncio.Event()
        self._plan: Plan | None = None
        self._programmed = Condition("Programmed", False, "Pending", "nothing is served yet")
        self._complaint = ""
        self.ready = False
        self._make_mirrors()

    def _make_mirrors(self) -> None:
        apis, changed = f"/apis/{GATEWAY_GROUP}/v1", self._changed.set
        self._classes: Mirror[Doc] = Mirror(f"{apis}/gatewayclasses", _whole, changed)
        namespace = self._task.gateway[0]
        self._gateways: Mirror[Doc] = Mirror(f"{apis}/namespaces/{namespace}/gateways", _whole, changed)
        self._routes: Mirror[Doc] = Mirror(f"{apis}/httproutes", _whole, changed)
        self._pools: Mirror[Doc] = Mirror(f"/apis/{POOL_GROUP}/v1/inferencepools", _whole, changed)
        self._services: Mirror[Service] = Mirror("/api/v1/services", read_service, changed)
        self._pods: Mirror[Pod] = Mirror("/api/v1/pods", read_pod, changed)

    async def run(self, access: Access) -> None:
        """Serve until cancelled; FrontEnded when the front ends, NotTakenUp when its first plan is refused."""
        mirrors = (self._classes, self._gateways, self._routes, self._pools, self._services, self._pods)
        async with Cluster(access) as cluster, asyncio.TaskGroup() as tasks:
            for mirror in mirrors:
                tasks.create_task(mirror.run(cluster))
            for mirror in mirrors:
                await mirror.listed.wait()
            self._plan = self._make_plan()
            await self._front.start(self._plan)
            tasks.create_task(self._front.ended())
            self._programmed = Condition("Programmed", True, "Programmed", self._where())
            self.ready = True
            self._status_wanted.set()
            tasks.create_task(self._follow())
            tasks.create_task(self._say(cluster))
            if self._task.listening.access_log:
                tasks.create_task(self._turn_logs(self._task.listening.access_log))

    # --- from objects to the front

    def _world(self) -> World:
        return World(
            classes=self._classes.objects,
            gateways=self._gateways.objects,
            routes=self._routes.objects,
            pools=self._pools.objects,
            services=self._services.objects,
            pods=self._pods.objects,
        )

    def _make_plan(self) -> Plan:
        return make_plan(self._world(), self._task.gateway, port=self._task.listening.port)

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(_GATHER_S)
            self._changed.clear()
            plan = self._make_plan()
            try:
                await self._front.apply(plan)
                self._programmed = Condition("Programmed", True, "Programmed", self._where())
                self._complain("")
            except NotTakenUp as problem:
                self._programmed = Condition("Programmed", False, "Invalid", str(problem))
                self._complain(f"gateway: {problem}")
                asyncio.get_running_loop().call_later(_RETRY_S, self._changed.set)
            self._plan = plan
            self._status_wanted.set()

    def _where(self) -> str:
        return f"served at {self._task.listening.address}:{self._task.listening.port}"

    def _complain(self, text: str) -> None:
        """Say what is wrong once, not at every change."""
        if text and text != self._complaint:
            print(text, file=sys.stderr, flush=True)
        self._complaint = text

    # --- from the front to statuses

    async def _say(self, cluster: Cluster) -> None:
        while True:
            await self._status_wanted.wait()
            self._status_wanted.clear()
            assert self._plan is not None
            served = Served(self._programmed, self._task.listening.address)
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            for write in writes(self._world(), self._plan, self._task.gateway, served, now):
                if not await self._write(cluster, write):
                    await asyncio.sleep(_RETRY_S)
                    self._status_wanted.set()

    async def _write(self, cluster: Cluster, write: Write) -> bool:
        """Whether a status is written, or need not be by us: who was faster, or the deletion, brings an event."""
        try:
            await cluster.write_status(write.path, write.version, write.status)
        except ApiFailure as problem:
            if problem.status in {404, 409}:
                return True
            print(f"gateway: cannot write the status of {write.path}: {problem}", file=sys.stderr, flush=True)
            return False
        except (aiohttp.ClientError, TimeoutError):
            return False
        return True

    # --- logs

    async def _turn_logs(self, path: Path) -> None:
        """Keep the access log and three older ones, each about ``log_bytes`` at most."""
        while True:
            await asyncio.sleep(_LOG_LOOK_S)
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_size >= self._task.log_bytes:
                    turn(path, _LOGS_KEPT)
                    await self._front.reopen_log()


def turn(path: Path, kept: int) -> None:
    """Rename F to F.1, F.1 to F.2 and so on; what would become F.<kept + 1> goes."""
    for number in range(kept, 0, -1):
        older = path.with_name(f"{path.name}.{number - 1}") if number > 1 else path
        if older.exists():
            older.rename(path.with_name(f"{path.name}.{number}"))


def _whole(doc: Doc) -> Doc:
    return doc
