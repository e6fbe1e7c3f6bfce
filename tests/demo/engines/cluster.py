"""A small Kubernetes API with pods, and engines that follow it."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import socket
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from deploy.demo.engines.admin import admin_app
from deploy.demo.engines.clock import Clock
from deploy.demo.engines.engine import Engine
from deploy.demo.engines.fleet import Fleet
from deploy.demo.engines.kube import PodFeed
from deploy.demo.engines.roles import engine_options

Doc = dict[str, Any]
NAMESPACE = "serving"
# Test runs beside each other use addresses of their own.
_NETWORK = f"127.77.{os.getpid() % 250}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def pod(
    name: str,
    role: str,
    number: int,
    *,
    revision: str = "aaaaaaaa",
    state: str = "up",
    labels: Mapping[str, str] | None = None,
    **options: Any,
) -> Doc:
    """An engine pod on address ``number`` of this test run; ``options`` as for engine_options."""
    made = engine_options(role, **options)
    started, ready = state != "loading", state == "up"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": str(uuid.uuid4()),
            "labels": {
                "disaggregatedset.x-k8s.io/name": "chat",
                "disaggregatedset.x-k8s.io/role": role,
                "disaggregatedset.x-k8s.io/revision": revision,
                "leaderworkerset.sigs.k8s.io/worker-index": "0",
                **made["labels"],
                **(labels or {}),
            },
        },
        "spec": {
            "containers": [
                {
                    "name": "engine",
                    "image": made["image"],
                    "args": made["args"],
                    "env": [
                        {"name": key, "value": value}
                        if isinstance(value, str)
                        else {"name": key, "valueFrom": value}
                        for key, value in made["env"].items()
                    ],
                }
            ]
        },
        "status": {
            "phase": "Pending" if state == "pending" else "Running",
            "podIP": f"{_NETWORK}.{number}",
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [
                {
                    "name": "engine",
                    "ready": ready,
                    "started": started,
                    "restartCount": 0,
                    "state": {"running": {}},
                }
            ],
        },
    }


@dataclass
class FakeApi:
    """Pods with list and watch, as a real API server would serve them."""

    pods: dict[str, Doc] = field(default_factory=dict)
    version: int = 1
    url: str = ""
    _watchers: list[asyncio.Queue[Doc | None]] = field(default_factory=list)

    def put(self, document: Doc) -> None:
        """Create or change a pod."""
        kind = "MODIFIED" if document["metadata"]["name"] in self.pods else "ADDED"
        self.pods[document["metadata"]["name"]] = document
        self._tell(kind, document)

    def delete(self, name: str) -> None:
        """The pod's object goes."""
        self._tell("DELETED", self.pods.pop(name))

    def end_watches(self, *, error: bool = False) -> None:
        """Every watch ends, with a 410 in the stream if ``error``."""
        for watcher in self._watchers:
            if error:
                watcher.put_nowait({"type": "ERROR", "object": {"kind": "Status", "code": 410}})
            watcher.put_nowait(None)

    def _tell(self, kind: str, document: Doc) -> None:
        self.version += 1
        document["metadata"]["resourceVersion"] = str(self.version)
        for watcher in self._watchers:
            watcher.put_nowait({"type": kind, "object": copy.deepcopy(document)})

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            items = list(self.pods.values())
            return web.json_response({"items": items, "metadata": {"resourceVersion": str(self.version)}})
        events: asyncio.Queue[Doc | None] = asyncio.Queue()
        since = int(request.query["resourceVersion"])
        for document in self.pods.values():
            if int(document["metadata"]["resourceVersion"]) > since:
                events.put_nowait({"type": "ADDED", "object": document})
        self._watchers.append(events)
        response = web.StreamResponse()
        await response.prepare(request)
        while (event := await events.get()) is not None:
            await response.write(json.dumps(event).encode() + b"\n")
        return response


class SkippingClock(Clock):
    """A clock that a test can put forward; sleeps are not shortened by that."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


@dataclass
class Cluster:
    """What a test sees: the API, the fleet that follows it, and a client that asks engines."""

    api: FakeApi
    fleet: Fleet
    client: aiohttp.ClientSession
    admin: str
    kubeconfig: Path

    def address(self, name: str) -> str:
        """host:port of a pod's engine."""
        return f"{self.api.pods[name]['status']['podIP']}:{self.fleet.port}"

    def engine(self, name: str) -> Engine:
        """The engine that answers for a pod now."""
        found = self.fleet.hosts[f"{NAMESPACE}/{name}"].engine
        assert found is not None, f"{name} does not answer"
        return found

    async def add(self, *documents: Doc) -> None:
        """Create pods and wait until their engines answer, if they should."""
        for document in documents:
            self.api.put(document)
        for document in documents:
            name = document["metadata"]["name"]
            uid = document["metadata"]["uid"]

            def answers(name: str = name, uid: str = uid) -> bool:
                host = self.fleet.hosts.get(f"{NAMESPACE}/{name}")
                return bool(host and host.engine and host.engine.pod.incarnation.startswith(uid))

            await until(answers)

    async def ask(
        self,
        name: str,
        prompt: Any = "hello",
        *,
        via: str = "",
        headers: Mapping[str, str] | None = None,
        **body: Any,
    ) -> tuple[int, Doc]:
        """A completion from a pod's engine, with the prefill at pod ``via``; (status, document)."""
        sent = dict(headers or {})
        if via:
            sent["x-prefiller-host-port"] = self.address(via)
        path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        content = {"temperature": 0, **({} if "messages" in body else {"prompt": prompt}), **body}
        url = f"http://{self.address(name)}{path}"
        async with self.client.post(url, json=content, headers=sent) as answer:
            return answer.status, await answer.json()

    async def text(self, name: str, prompt: Any = "hello", **options: Any) -> str:
        """The text of a completion that must succeed."""
        status, document = await self.ask(name, prompt, **options)
        assert status == 200, document
        return str(document["choices"][0]["text"])

    async def get(self, name: str, path: str) -> tuple[int, str]:
        async with self.client.get(f"http://{self.address(name)}{path}") as answer:
            return answer.status, await answer.text()

    async def metrics(self, name: str) -> dict[tuple[str, str], float]:
        """Samples of a pod's /metrics without buckets: (name, value of the family's own label) -> value."""
        _, text = await self.get(name, "/metrics")
        found = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                own = [v for k, v in sample.labels.items() if k not in ("engine", "model_name", "le")]
                if "le" not in sample.labels:
                    found[sample.name, own[0] if own else ""] = sample.value
        return found

    def skip(self, seconds: float) -> None:
        """Put the engines' clock forward by model seconds."""
        assert isinstance(self.fleet.clock, SkippingClock)
        self.fleet.clock.ahead += seconds

    async def fault(self, match: Doc, **fault: Any) -> int:
        """A live fault; returns its id."""
        async with self.client.post(f"{self.admin}/faults", json={"match": match, "fault": fault}) as answer:
            document = await answer.json()
            assert answer.status == 201, document
            return int(document["id"])

    async def admin_get(self, path: str) -> Doc:
        async with self.client.get(self.admin + path) as answer:
            assert answer.status == 200
            found: Doc = await answer.json()
            return found


async def until(look: Callable[[], Any], *, limit_s: float = 10.0) -> Any:
    """Wait for something to be true."""
    end = asyncio.get_running_loop().time() + limit_s
    while not (seen := look()):
        assert asyncio.get_running_loop().time() < end, "not seen in time"
        await asyncio.sleep(0.01)
    return seen


def kubeconfig_for(url: str, folder: Path) -> Path:
    path = folder / "kubeconfig.yaml"
    config = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(config))
    return path


@asynccontextmanager
async def fake_api() -> AsyncIterator[FakeApi]:
    """A served FakeApi."""
    api = FakeApi()
    app = web.Application()
    app.add_routes(
        [web.get("/api/v1/pods", api.answer), web.get(f"/api/v1/namespaces/{NAMESPACE}/pods", api.answer)]
    )
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    api.url = f"http://127.0.0.1:{port}"
    try:
        yield api
    finally:
        api.end_watches()
        await runner.cleanup()


@asynccontextmanager
async def cluster(
    *documents: Doc, scale: float = 0.01, jitter: float = 0.0, seed: int = 1
) -> AsyncIterator[Cluster]:
    """Pods, their engines, the admin port."""
    with tempfile.TemporaryDirectory() as folder:
        async with (
            fake_api() as api,
            Fleet(port=free_port(), seed=seed, time_scale=scale, jitter=jitter) as fleet,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client,
        ):
            fleet.clock = SkippingClock(scale)
            kubeconfig = kubeconfig_for(api.url, Path(folder))
            runner = web.AppRunner(admin_app(fleet, [""]), access_log=None)
            await runner.setup()
            port = free_port()
            await web.TCPSite(runner, "127.0.0.1", port).start()
            feed = PodFeed(kubeconfig, "", replace=lambda docs: fleet.replace("", docs), change=fleet.change)
            task = asyncio.ensure_future(feed.run())
            made = Cluster(api, fleet, client, f"http://127.0.0.1:{port}", kubeconfig)
            try:
                await made.add(*documents)
                yield made
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await runner.cleanup()


PROMPT = "the quick brown fox " * 40  # 200 tokens


def pair(prefill: Doc, decode: Doc) -> list[Doc]:
    """One prefill engine p and one decode engine d, of two revisions."""
    return [
        pod("p", "prefill", 1, **{"revision": "old", **prefill}),
        pod("d", "decode", 2, **{"revision": "new", **decode}),
    ]


async def moved(c: Cluster) -> float:
    """Transfers that decode has finished."""
    return (await c.metrics("d"))["vllm:nixl_xfer_time_seconds_count", ""]
