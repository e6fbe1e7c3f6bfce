"""List and watch over the API server's own protocol, with an identity from a kubeconfig or a pod's service account."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import yaml

Doc = dict[str, Any]
log = logging.getLogger(__name__)

PAGE = 500
WATCH_S = 300
_SHORT_S = 1.0
_BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 5.0)
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_CALL_LIMIT = aiohttp.ClientTimeout(total=20)
_WATCH_LIMIT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=WATCH_S + 30)


class NoCluster(RuntimeError):
    """There is no identity to reach a cluster with."""


class Gone(RuntimeError):
    """The version to watch from is no longer kept, or the server ended the watch with an error: list again."""


class Cluster:
    """One API server, seen with one identity."""

    def __init__(self, server: str, token: str, trust: ssl.SSLContext | None) -> None:
        self.server = server.rstrip("/")
        self._token = token
        self._trust = trust
        self._session: aiohttp.ClientSession | None = None

    def session(self) -> aiohttp.ClientSession:
        """The session of this identity, made on the running loop."""
        if self._session is None:
            headers = {"Accept": "application/json"}
            if self._token:
                headers["Authorization"] = f"Bearer {self._token}"
            connector = aiohttp.TCPConnector(ssl=self._trust if self._trust is not None else True)
            self._session = aiohttp.ClientSession(headers=headers, connector=connector)
        return self._session

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> tuple[int, Doc]:
        """(HTTP status, document) of one GET; aiohttp's errors when nothing answers."""
        async with self.session().get(self.server + path, params=query, timeout=_CALL_LIMIT) as answer:
            try:
                document: Doc = await answer.json(content_type=None)
            except ValueError:
                document = {}
            return answer.status, document

    async def events(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Doc]:
        """Watch events until the server ends the watch; Gone when it may not be taken up where it ended."""
        async with self.session().get(self.server + path, params=query, timeout=_WATCH_LIMIT) as answer:
            if answer.status != 200:
                raise Gone(f"watch answered {answer.status}")
            rest = b""
            async for piece in answer.content.iter_any():
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    if line.strip():
                        event: Doc = json.loads(line)
                        if event["type"] == "ERROR":
                            raise Gone(str(event["object"].get("message", "")))
                        yield event

    async def close(self) -> None:
        """End the session."""
        if self._session is not None:
            await self._session.close()


def find_cluster(environment: Mapping[str, str] | None = None) -> Cluster:
    """The cluster of KUBECONFIG, else of the pod's service account; NoCluster when there is neither."""
    env = os.environ if environment is None else environment
    if env.get("KUBECONFIG"):
        return _from_kubeconfig(Path(env["KUBECONFIG"]))
    host, port = env.get("KUBERNETES_SERVICE_HOST"), env.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise NoCluster(
            "unable to load in-cluster config: unable to load in-cluster configuration, "
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be defined"
        )
    try:
        token = (_ACCOUNT / "token").read_text().strip()
        trust = ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt"))
    except OSError as error:
        raise NoCluster(f"unable to load in-cluster config: {error}") from None
    return Cluster(f"https://{host}:{port}", token, trust)


def _from_kubeconfig(path: Path) -> Cluster:
    try:
        config = yaml.safe_load(path.read_text())
        named = {
            kind: {entry["name"]: entry[kind[:-1]] for entry in config[kind]}
            for kind in ("clusters", "users", "contexts")
        }
        context = named["contexts"][config["current-context"]]
        cluster, user = named["clusters"][context["cluster"]], named["users"][context["user"]]
        trust: ssl.SSLContext | None = None
        if cluster["server"].startswith("https"):
            data = cluster.get("certificate-authority-data")
            trust = ssl.create_default_context(cadata=base64.b64decode(data).decode() if data else None)
            if cluster.get("insecure-skip-tls-verify"):
                trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        return Cluster(cluster["server"], user.get("token", ""), trust)
    except (OSError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        raise NoCluster(f"unable to load kubeconfig {path.name}: {type(error).__name__}: {error}") from None


async def follow(
    cluster: Cluster,
    path: str,
    *,
    on_list: Callable[[list[Doc]], None],
    on_event: Callable[[str, Doc], None],
    query: Mapping[str, str] | None = None,
) -> None:
    """Keep one collection: a complete list first, then ADDED, MODIFIED and DELETED, for ever.

    After an error, or when the version is gone (410), it lists again with a growing pause; until that succeeds the
    last state stays as it was.
    """
    failures = 0
    while True:
        try:
            version = await _list(cluster, path, dict(query or {}), on_list)
            failures = 0
            while True:
                version = await _watch(cluster, path, dict(query or {}), version, on_event)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, Gone) as error:
            pause = _BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)]
            failures += 1
            log.warning(
                "cannot follow %s, listing again in %.1f s: %s", path, pause, error or type(error).__name__
            )
            await asyncio.sleep(pause)


async def _list(
    cluster: Cluster, path: str, query: dict[str, str], on_list: Callable[[list[Doc]], None]
) -> str:
    items: list[Doc] = []
    more = ""
    while True:
        page = {**query, "limit": str(PAGE), **({"continue": more} if more else {})}
        status, document = await cluster.get(path, page)
        if status != 200:
            raise Gone(f"list answered {status}: {document.get('message', '')}")
        items += document.get("items") or []
        more = document["metadata"].get("continue", "")
        if not more:
            on_list(items)
            return str(document["metadata"]["resourceVersion"])


async def _watch(
    cluster: Cluster, path: str, query: dict[str, str], version: str, on_event: Callable[[str, Doc], None]
) -> str:
    query |= {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(WATCH_S),
        "resourceVersion": version,
    }
    began, first = time.monotonic(), version
    async for event in cluster.events(path, query):
        document = event["object"]
        if event["type"] != "BOOKMARK":
            on_event(event["type"], document)
        version = str(document["metadata"]["resourceVersion"])
    if version == first and time.monotonic() - began < _SHORT_S:
        raise Gone("the watch ended at once")  # asking again without a pause would never stop
    return version
