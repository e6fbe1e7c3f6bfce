"""A Kubernetes API server with as much of it as the gateway's controller uses: lists, watches, status patches."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
from typing import Any

from aiohttp import web

from tests.demo.gateway.stage import Stage

Doc = dict[str, Any]

PLURALS = {
    "gatewayclasses": "GatewayClass",
    "gateways": "Gateway",
    "httproutes": "HTTPRoute",
    "inferencepools": "InferencePool",
    "services": "Service",
    "pods": "Pod",
}
TOKEN = "the-gateways-own-token"


class FakeApi:
    """Objects with versions and generations; ``patches`` counts the status writes that were taken."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._version = 0
        self._objects: dict[tuple[str, str, str], Doc] = {}
        self._watchers: dict[asyncio.Queue[tuple[str, Doc] | None], tuple[str, str]] = {}
        self.patches: list[str] = []
        self.page = 2
        self._host, self._port = stage.address(), 0
        self.start()

    @property
    def server(self) -> str:
        """Its URL."""
        return f"http://{self._host}:{self._port}"

    def start(self) -> None:
        """Listen, at the same address as before."""
        self._stage.run(self._start())

    async def _start(self) -> None:
        app = web.Application()
        for base in ("/api/v1", "/apis/{group}/v1"):
            app.router.add_get(base + "/{plural}", self._get)
            app.router.add_get(base + "/namespaces/{namespace}/{plural}", self._get)
            app.router.add_patch(base + "/{plural}/{name}/status", self._patch)
            app.router.add_patch(base + "/namespaces/{namespace}/{plural}/{name}/status", self._patch)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port, reuse_address=True).start()
        self._port = self._runner.addresses[0][1]

    def stop(self) -> None:
        """End every watch and stop listening; the objects stay."""
        self.end_watches()
        self._stage.run(self._runner.cleanup())

    def kubeconfig(self) -> Doc:
        """A kubeconfig with two contexts; the current one leads nowhere."""
        cluster = {"name": "fake", "cluster": {"server": self.server}}
        nowhere = {"name": "nowhere", "cluster": {"server": "http://127.0.0.1:1"}}
        contexts = [
            {"name": each, "context": {"cluster": each, "user": "gateway"}} for each in ("fake", "nowhere")
        ]
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [cluster, nowhere],
            "users": [{"name": "gateway", "user": {"token": TOKEN}}],
            "contexts": contexts,
            "current-context": "nowhere",
        }

    # --- for tests

    def put(self, doc: Doc) -> None:
        """Create or replace; the status of an object that has one stays, unless the document brings its own."""
        self._stage.run(self._put(copy.deepcopy(doc)))

    def get(self, kind: str, namespace: str, name: str) -> Doc:
        """A copy of one object."""

        async def read() -> Doc:
            return copy.deepcopy(self._objects[(kind, namespace, name)])

        return self._stage.run(read())

    def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete one object."""

        async def drop() -> None:
            doc = self._objects.pop((kind, namespace, name))
            self._version += 1
            doc["metadata"]["resourceVersion"] = str(self._version)
            self._tell("DELETED", doc)

        self._stage.run(drop())

    def end_watches(self) -> None:
        """Break every open watch, as a restarted server does."""

        async def end() -> None:
            for queue in self._watchers:
                queue.put_nowait(None)

        self._stage.run(end())

    async def _put(self, doc: Doc) -> None:
        meta = doc["metadata"]
        key = (doc["kind"], meta.get("namespace", ""), meta["name"])
        old = self._objects.get(key)
        same_spec = old is not None and old.get("spec") == doc.get("spec")
        generation = old["metadata"]["generation"] if old else 0
        meta["generation"] = generation if same_spec else generation + 1
        if old and "status" in old:
            doc.setdefault("status", old["status"])
        self._store(key, doc, "MODIFIED" if old else "ADDED")

    def _store(self, key: tuple[str, str, str], doc: Doc, event: str) -> None:
        self._version += 1
        doc["metadata"]["resourceVersion"] = str(self._version)
        self._objects[key] = doc
        self._tell(event, doc)

    def _tell(self, event: str, doc: Doc) -> None:
        for queue, (kind, namespace) in self._watchers.items():
            if doc["kind"] == kind and namespace in {"", doc["metadata"].get("namespace", "")}:
                queue.put_nowait((event, copy.deepcopy(doc)))

    # --- HTTP

    async def _get(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.json_response({"message": "who are you?"}, status=401)
        kind, namespace = PLURALS[request.match_info["plural"]], request.match_info.get("namespace", "")
        if request.query.get("watch"):
            return await self._watch(request, kind, namespace)
        found = [
            doc
            for (kind_, namespace_, _), doc in sorted(self._objects.items())
            if kind_ == kind and namespace in {"", namespace_}
        ]
        start = int(request.query.get("continue") or 0)
        end = start + self.page  # smaller pages than asked for, so that paging is seen
        meta = {
            "resourceVersion": str(self._version),
            "continue": str(end) if end < len(found) else "",
        }
        return web.json_response({"metadata": meta, "items": found[start:end]})

    async def _watch(self, request: web.Request, kind: str, namespace: str) -> web.StreamResponse:
        answer = web.StreamResponse()
        if int(request.query["resourceVersion"]) < self._version and self._missed(request, kind, namespace):
            gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            await answer.prepare(request)
            await answer.write(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
            return answer
        queue: asyncio.Queue[tuple[str, Doc] | None] = asyncio.Queue()
        self._watchers[queue] = (kind, namespace)
        try:
            await answer.prepare(request)
            while (event := await queue.get()) is not None:
                line = json.dumps({"type": event[0], "object": event[1]}).encode() + b"\n"
                half = len(line) // 2  # a line may come in pieces
                await answer.write(line[:half])
                await answer.write(line[half:])
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            with contextlib.suppress(KeyError):
                del self._watchers[queue]
        return answer

    def _missed(self, request: web.Request, kind: str, namespace: str) -> bool:
        """Whether something of this collection changed since the version asked for: this server keeps no history."""
        since = int(request.query["resourceVersion"])
        return any(
            key[0] == kind and namespace in {"", key[1]} and int(doc["metadata"]["resourceVersion"]) > since
            for key, doc in self._objects.items()
        )

    async def _patch(self, request: web.Request) -> web.Response:
        info = request.match_info
        key = (PLURALS[info["plural"]], info.get("namespace", ""), info["name"])
        doc = self._objects.get(key)
        if doc is None:
            return web.json_response({"message": "not found"}, status=404)
        body = await request.json()
        if body["metadata"]["resourceVersion"] != doc["metadata"]["resourceVersion"]:
            return web.json_response({"message": "conflict"}, status=409)
        changed = copy.deepcopy(doc)
        changed["status"] = {**doc.get("status", {}), **body["status"]}
        self._store(key, changed, "MODIFIED")
        self.patches.append("/".join(key))
        return web.json_response(changed)
