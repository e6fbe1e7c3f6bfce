"""Follows the pods of a cluster: a list, then a watch, again and again."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import yaml

Doc = dict[str, Any]
_AGAIN_S = 0.5
_WATCH_S = 240
_LIST_LIMIT_S = 30


class Gone(Exception):
    """The watch must begin with a new list."""


class PodFeed:
    """Calls ``replace(documents)`` after every list and ``change(type, document)`` for every event of a watch.

    One feed covers one namespace, or all with "". It never gives up: without the API what is known stays.
    """

    def __init__(
        self,
        kubeconfig: Path,
        namespace: str,
        *,
        replace: Callable[[list[Doc]], None],
        change: Callable[[str, Doc], None],
    ) -> None:
        access = _Access(kubeconfig)
        self._url = f"{access.server}/api/v1/" + (f"namespaces/{namespace}/pods" if namespace else "pods")
        self._access = access
        self._replace = replace
        self._change = change

    async def run(self) -> None:
        """Until cancelled."""
        connector = aiohttp.TCPConnector(ssl=self._access.tls)
        headers = {**self._access.headers, "Accept": "application/json"}
        async with aiohttp.ClientSession(connector=connector, headers=headers, trust_env=False) as client:
            while True:
                with suppress(aiohttp.ClientError, TimeoutError, OSError, ValueError, Gone):
                    version = await self._list(client)
                    while True:
                        version = await self._watch(client, version)
                await asyncio.sleep(_AGAIN_S)

    async def _list(self, client: aiohttp.ClientSession) -> str:
        limit = aiohttp.ClientTimeout(total=_LIST_LIMIT_S)
        async with client.get(self._url, timeout=limit) as answer:
            answer.raise_for_status()
            found = await answer.json(content_type=None)
        self._replace(found.get("items") or [])
        return str(found.get("metadata", {}).get("resourceVersion", ""))

    async def _watch(self, client: aiohttp.ClientSession, version: str) -> str:
        query = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_S),
        }
        limit = aiohttp.ClientTimeout(total=None, sock_connect=_LIST_LIMIT_S, sock_read=_WATCH_S + 30)
        async with client.get(self._url, params=query, timeout=limit) as answer:
            answer.raise_for_status()
            async for event in _lines(answer.content):
                if event["type"] == "ERROR":
                    raise Gone
                version = str(event["object"]["metadata"].get("resourceVersion", version))
                if event["type"] != "BOOKMARK":
                    self._change(event["type"], event["object"])
        return version


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[Doc]:
    """JSON documents, one a line, of any length."""
    rest = b""
    async for piece in stream.iter_any():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.strip():
                yield json.loads(line)


class _Access:
    """Server, headers and TLS of the current context of a kubeconfig file."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        context = _named(config["contexts"], config.get("current-context"))["context"]
        cluster = _named(config["clusters"], context["cluster"])["cluster"]
        user = _named(config.get("users") or [], context["user"]).get("user") or {}
        self.server = str(cluster["server"]).rstrip("/")
        self.headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
        self.tls: ssl.SSLContext | bool = True
        if self.server.startswith("https"):
            self.tls = _tls(cluster, user)


def _named(entries: Sequence[Doc], name: str | None) -> Doc:
    for entry in entries:
        if name is None or entry["name"] == name:
            return entry
    return {}


def _tls(cluster: Doc, user: Doc) -> ssl.SSLContext:
    authority = cluster.get("certificate-authority-data")
    context = ssl.create_default_context(cadata=base64.b64decode(authority).decode() if authority else None)
    if "certificate-authority" in cluster:
        context.load_verify_locations(cluster["certificate-authority"])
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if "client-certificate-data" in user:
        with tempfile.NamedTemporaryFile("wb") as pair:  # the ssl module takes files only
            pair.write(base64.b64decode(user["client-certificate-data"]) + b"\n")
            pair.write(base64.b64decode(user["client-key-data"]))
            pair.flush()
            context.load_cert_chain(pair.name)
    return context
