"""The Kubernetes API as the controller sees it: mirrors kept by list and watch, and writes of status."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import aiohttp
import yaml

Doc = dict[str, Any]
Key = tuple[str, str]
T = TypeVar("T")

_PAGE = 500
_WATCH_S = 120
_CALL = aiohttp.ClientTimeout(total=5)


class BadConfiguration(ValueError):
    """A file that the controller was started with does not say what it needs."""


class ApiFailure(RuntimeError):
    """An answer other than 2xx: HTTP ``status`` and the message of the API server."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


@dataclass(frozen=True)
class Access:
    """Where an API server is and how to speak to it; ``trust`` None for plain HTTP."""

    server: str
    token: str
    trust: ssl.SSLContext | None


def read_kubeconfig(path: Path, context: str = "") -> Access:
    """Server, authority and token of one context (the current one by default).

    Raises BadConfiguration for an unknown context or a user without a token: nothing else is understood.
    """
    config = yaml.safe_load(path.read_text())
    contexts = {each["name"]: each["context"] for each in config.get("contexts", [])}
    wanted = context or config.get("current-context", "")
    if wanted not in contexts:
        raise BadConfiguration(f"{path.name} has no context {wanted!r}")
    clusters = {each["name"]: each["cluster"] for each in config["clusters"]}
    users = {each["name"]: each["user"] for each in config["users"]}
    cluster, user = clusters[contexts[wanted]["cluster"]], users[contexts[wanted]["user"]]
    if not user.get("token"):
        raise BadConfiguration(f"{path.name}: the user of context {wanted!r} has no token")
    server: str = cluster["server"].rstrip("/")
    return Access(server, user["token"], _trust(cluster) if server.startswith("https:") else None)


def _trust(cluster: Doc) -> ssl.SSLContext:
    if cluster.get("insecure-skip-tls-verify"):
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        return trust
    data = cluster.get("certificate-authority-data")
    authority = base64.b64decode(data).decode() if data else None
    return ssl.create_default_context(cafile=cluster.get("certificate-authority"), cadata=authority)


class Cluster:
    """One API server; use as an async context manager."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def __aenter__(self) -> Cluster:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._access.trust or True)
        headers = {"Authorization": f"Bearer {self._access.token}", "Accept": "application/json"}
        self._session = aiohttp.ClientSession(connector=connector, headers=headers, timeout=_CALL)
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self._session.close()

    async def pages(self, path: str) -> AsyncIterator[Doc]:
        """The pages of a collection."""
        query = {"limit": str(_PAGE)}
        while True:
            async with self._session.get(self._access.server + path, params=query) as answer:
                page = await _parsed(answer)
            yield page
            query["continue"] = page["metadata"].get("continue", "")
            if not query["continue"]:
                return

    async def events(self, path: str, version: str) -> AsyncIterator[Doc]:
        """What happens in a collection after a resourceVersion, until the server ends the watch."""
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(_WATCH_S),
        }
        patience = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=_WATCH_S + 30)
        async with self._session.get(self._access.server + path, params=query, timeout=patience) as answer:
            if answer.status != 200:
                await _parsed(answer)
            rest = b""
            async for piece in answer.content.iter_any():
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    if line.strip():
                        yield json.loads(line)

    async def write_status(self, path: str, version: str, status: Doc) -> None:
        """Merge ``status`` into an object that is still at ``version``; ApiFailure 409 when it is not."""
        body = json.dumps({"metadata": {"resourceVersion": version}, "status": status})
        headers = {"Content-Type": "application/merge-patch+json"}
        url = f"{self._access.server}{path}/status"
        async with self._session.patch(url, data=body, headers=headers) as answer:
            await _parsed(answer)


async def _parsed(answer: aiohttp.ClientResponse) -> Doc:
    text = await answer.text()
    try:
        parsed: Doc = json.loads(text)
    except ValueError:
        parsed = {"message": text}
    if not 200 <= answer.status < 300:
        raise ApiFailure(answer.status, str(parsed.get("message", "")))
    return parsed


class Mirror(Generic[T]):
    """A copy of one collection, each object as ``read`` sees it; ``changed()`` is called when a copy differs."""

    def __init__(self, path: str, read: Callable[[Doc], T], changed: Callable[[], None]) -> None:
        self._path = path
        self._read = read
        self._changed = changed
        self._complaint = ""
        self.objects: dict[Key, T] = {}
        self.listed = asyncio.Event()

    async def run(self, cluster: Cluster) -> None:
        """Follow the collection for ever; what goes wrong is said once and tried again."""
        while True:
            try:
                version = await self._list(cluster)
                self._complaint = ""
                while version:
                    version = await self._follow(cluster, version)
            except (ApiFailure, aiohttp.ClientError, TimeoutError, ValueError) as problem:
                if str(problem) != self._complaint:
                    self._complaint = str(problem)
                    print(f"gateway: cannot follow {self._path}: {problem!r}", file=sys.stderr, flush=True)
                await asyncio.sleep(0.5)

    async def _list(self, cluster: Cluster) -> str:
        found: dict[Key, T] = {}
        version = ""
        async for page in cluster.pages(self._path):
            version = page["metadata"]["resourceVersion"]
            found.update((_key(doc), self._read(doc)) for doc in page["items"])
        first = not self.listed.is_set()
        self.listed.set()
        if first or found != self.objects:
            self.objects = found
            self._changed()
        return version

    async def _follow(self, cluster: Cluster, version: str) -> str:
        """Take up events until the watch ends: the version to go on from, or "" where it must be listed anew."""
        async for event in cluster.events(self._path, version):
            doc = event["object"]
            if event["type"] == "ERROR":
                return ""
            version = doc["metadata"]["resourceVersion"]
            if event["type"] == "DELETED":
                self._take(_key(doc), None)
            elif event["type"] != "BOOKMARK":
                self._take(_key(doc), self._read(doc))
        return version

    def _take(self, key: Key, value: T | None) -> None:
        if value == self.objects.get(key):
            return
        if value is None:
            del self.objects[key]
        else:
            self.objects[key] = value
        self._changed()


def _key(doc: Doc) -> Key:
    return doc["metadata"].get("namespace", ""), doc["metadata"]["name"]
