"""A small API server of the tests: list and watch of a few collections, over HTTP, in a thread of its own."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

Doc = dict[str, Any]

NAMESPACE = "serving"
POOLS = f"/apis/inference.networking.k8s.io/v1/namespaces/{NAMESPACE}/inferencepools"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
OBJECTIVES = f"/apis/llm-d.ai/v1alpha2/namespaces/{NAMESPACE}/inferenceobjectives"
OLD_OBJECTIVES = f"/apis/inference.networking.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/inferenceobjectives"
GROUPS = {
    OBJECTIVES: "/apis/llm-d.ai/v1alpha2",
    OLD_OBJECTIVES: "/apis/inference.networking.x-k8s.io/v1alpha2",
}
TOKEN = "a-token"
_PAGE = 3  # small, so that every list of the tests takes several pages


class FakeCluster:
    """State and switches; every method may be called from the test's thread."""

    def __init__(self) -> None:
        self.held: set[str] = set()  # collections whose list does not answer
        self.served = {OBJECTIVES}
        self.lists: dict[str, int] = {}
        self._state: dict[str, dict[str, Doc]] = {PODS: {}, POOLS: {}, OBJECTIVES: {}, OLD_OBJECTIVES: {}}
        self._version = 100
        self._oldest = 0
        self._log: list[tuple[int, str, str, Doc]] = []
        self._loop = asyncio.new_event_loop()
        self._changed: asyncio.Event
        self._cuts = 0
        self.port = 0

    def put(self, collection: str, document: Doc) -> None:
        """Create or replace an object."""

        def do() -> None:
            name = document["metadata"]["name"]
            kind = "MODIFIED" if name in self._state[collection] else "ADDED"
            self._write(collection, kind, document)
            self._state[collection][name] = document

        self._on_loop(do)

    def delete(self, collection: str, name: str) -> None:
        """Delete an object."""
        self._on_loop(lambda: self._write(collection, "DELETED", self._state[collection].pop(name)))

    def cut(self) -> None:
        """End every watch that is open now, in the middle."""

        def do() -> None:
            self._cuts += 1
            self._changed.set()

        self._on_loop(do)

    def forget(self) -> None:
        """Compact: a watch from any version before this moment is answered with 410."""

        def do() -> None:
            self._version += 1
            self._oldest = self._version
            self._log.clear()

        self._on_loop(do)

    def _write(self, collection: str, kind: str, document: Doc) -> None:
        self._version += 1
        document["metadata"]["resourceVersion"] = str(self._version)
        self._log.append((self._version, collection, kind, json.loads(json.dumps(document))))
        self._changed.set()

    def _on_loop(self, what: Any) -> None:
        done = threading.Event()

        def run() -> None:
            what()
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(10)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.json_response({"message": "Unauthorized"}, status=401)
        if "watch" in request.query:
            return await self._watch(request)
        self.lists[request.path] = self.lists.get(request.path, 0) + 1
        while request.path in self.held:
            await asyncio.sleep(0.02)
        items = sorted(self._state[request.path].items())
        start = int(request.query.get("continue", "0"))
        more = str(start + _PAGE) if start + _PAGE < len(items) else ""
        meta = {"resourceVersion": str(self._version), **({"continue": more} if more else {})}
        return web.json_response(
            {"metadata": meta, "items": [doc for _, doc in items[start : start + _PAGE]]}
        )

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        seen, cuts = int(request.query["resourceVersion"]), self._cuts
        answer = web.StreamResponse()
        await answer.prepare(request)

        async def send(kind: str, document: Doc) -> None:
            await answer.write(json.dumps({"type": kind, "object": document}).encode() + b"\n")

        if seen < self._oldest:
            await send("ERROR", {"code": 410, "message": "too old resource version"})
            return answer
        await send("BOOKMARK", {"metadata": {"resourceVersion": str(seen)}})
        while cuts == self._cuts:
            for version, collection, kind, document in list(self._log):
                if version > seen and collection == request.path:
                    await send(kind, document)
                    seen = version
            self._changed.clear()
            await self._changed.wait()
        if request.transport is not None:
            request.transport.close()
        return answer

    async def _group(self, request: web.Request) -> web.Response:
        if not any(GROUPS[served] == request.path for served in self.served):
            return web.json_response({"message": "not found"}, status=404)
        return web.json_response({"resources": [{"name": "inferenceobjectives"}]})

    async def _serve(self) -> web.AppRunner:
        self._changed = asyncio.Event()
        app = web.Application()
        app.add_routes([web.get(path, self._answer) for path in self._state])
        app.add_routes([web.get(path, self._group) for path in GROUPS.values()])
        runner = web.AppRunner(app, shutdown_timeout=0.2)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        return runner


@contextmanager
def fake_cluster() -> Iterator[FakeCluster]:
    """A running fake API server."""
    cluster = FakeCluster()
    loop = cluster._loop
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(cluster._serve(), loop).result(10)
    try:
        yield cluster
    finally:
        cluster.held.clear()
        cluster.cut()
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


def kubeconfig(folder: Path, port: int) -> Path:
    """A kubeconfig file for it."""
    named = {"name": "test"}
    document = {
        "current-context": "test",
        "clusters": [{**named, "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{**named, "user": {"token": TOKEN}}],
        "contexts": [{**named, "context": {"cluster": "test", "user": "test"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


def pool(name: str = "pool", port: int = 8000, **labels: str) -> Doc:
    """An InferencePool over pods with these labels (default: app=engine)."""
    spec = {"selector": {"matchLabels": labels or {"app": "engine"}}, "targetPorts": [{"number": port}]}
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def objective(name: str, priority: int | None, *, pool: str = "pool", group: str = "") -> Doc:
    """An InferenceObjective."""
    ref = {"name": pool, **({"group": group} if group else {})}
    spec = {"poolRef": ref, **({} if priority is None else {"priority": priority})}
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def pod(name: str, ip: str, role: str, revision: str, *, ready: bool = True, **labels: str) -> Doc:
    """An engine's pod of the set "qwen"."""
    return {
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {
                "app": "engine",
                "llm-d.ai/role": role,
                "disaggregatedset.x-k8s.io/name": "qwen",
                "disaggregatedset.x-k8s.io/role": role,
                "disaggregatedset.x-k8s.io/revision": revision,
                **labels,
            },
        },
        "status": {"podIP": ip, "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
    }


def revision_pods(revision: str, prefill: int, decode: int, net: int) -> list[Doc]:
    """Pods of one revision: addresses 127.<net>.1.x prefill, 127.<net>.2.x decode."""
    roles = [("prefill", prefill, 1), ("decode", decode, 2)]
    return [
        pod(f"qwen-{revision}-{role}-{i}", f"127.{net}.{sub}.{i + 1}", role, revision)
        for role, count, sub in roles
        for i in range(count)
    ]
