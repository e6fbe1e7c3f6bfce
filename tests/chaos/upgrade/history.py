"""Everything that was written, in the order of the API server, by watches that know nothing of Lockstep.

The resourceVersions of one etcd are one sequence over all kinds, so sets, LeaderWorkerSets, Services and hold
parameters can be put in one order.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3
import yaml

Json = dict[str, Any]
SETS, CHILDREN, SERVICES, PARAMETERS = "sets", "children", "services", "parameters"


@dataclass(frozen=True, slots=True)
class Written:
    """One write as the API server told it: `at` is when we heard of it (seconds since the epoch)."""

    version: int
    kind: str
    event: str  # ADDED, MODIFIED, DELETED
    body: Json
    at: float

    @property
    def name(self) -> str:
        """Name of the object."""
        return str(self.body["metadata"]["name"])


class History:
    """Lists once and watches from there on without a gap, for as long as it is open."""

    def __init__(self, kubeconfig: Path, paths: Mapping[str, str]) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        self._server = cluster["server"]
        self._pool = urllib3.PoolManager(
            retries=False,
            maxsize=12,
            ca_cert_data=base64.b64decode(cluster["certificate-authority-data"]).decode(),
            headers={"Authorization": f"Bearer {config['users'][0]['user']['token']}"},
        )
        self._paths = dict(paths)
        self._writes: list[Written] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self.problems: list[str] = []
        self._threads = [
            threading.Thread(target=self._follow, args=(kind, *self._list(kind)), daemon=True)
            for kind in self._paths
        ]
        for thread in self._threads:
            thread.start()

    def writes(self, keep: Callable[[Written], bool] = lambda written: True) -> list[Written]:
        """Writes in the order of the API server."""
        with self._lock:
            found = [written for written in self._writes if keep(written)]
        return sorted(found, key=lambda written: written.version)

    def catch_up(self, *, limit_s: float = 10) -> None:
        """Wait until everything that is stored now has been seen."""
        end = time.monotonic() + limit_s
        while missing := self._missing():
            assert time.monotonic() < end, f"the observer does not catch up: {missing}"
            time.sleep(0.05)
        assert not self.problems, self.problems

    def close(self) -> None:
        """End the watches."""
        self._ended.set()
        for thread in self._threads:
            thread.join(5)
        self._pool.clear()

    def _missing(self) -> list[str]:
        seen: dict[tuple[str, str], int] = {}
        for written in self.writes():
            seen[written.kind, written.name] = written.version
        missing = []
        for kind in self._paths:
            for item in self._get(kind)["items"]:
                name, version = item["metadata"]["name"], int(item["metadata"]["resourceVersion"])
                if seen.get((kind, name), 0) < version:
                    missing.append(f"{kind} {name}")
        return missing

    def _get(self, kind: str) -> Json:
        answer = self._pool.request("GET", self._server + self._paths[kind], timeout=10)
        found: Json = json.loads(answer.data)
        assert answer.status == 200, found
        return found

    def _list(self, kind: str) -> tuple[int]:
        found = self._get(kind)
        for item in found["items"]:
            self._note(kind, "ADDED", item)
        return (int(found["metadata"]["resourceVersion"]),)

    def _note(self, kind: str, event: str, body: Json) -> None:
        body["metadata"].pop("managedFields", None)
        version = int(body["metadata"]["resourceVersion"])
        with self._lock:
            self._writes.append(Written(version, kind, event, body, time.time()))

    def _follow(self, kind: str, version: int) -> None:
        while not self._ended.is_set():
            url = f"{self._server}{self._paths[kind]}"
            sign = "&" if "?" in url else "?"
            url += f"{sign}watch=true&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds=60"
            try:
                answer = self._pool.request(
                    "GET", url, preload_content=False, timeout=urllib3.Timeout(connect=5, read=0.5)
                )
                for event in _events(answer):
                    if event["type"] == "ERROR":
                        self.problems.append(f"{kind}: {event['object']}")
                        return
                    version = int(event["object"]["metadata"]["resourceVersion"])
                    if event["type"] != "BOOKMARK":
                        self._note(kind, event["type"], event["object"])
            except urllib3.exceptions.HTTPError:
                continue  # silence, or the server is away: go on from the last version


def _events(answer: Any) -> Iterator[Json]:
    rest = b""
    for chunk in answer.stream(65536):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (json.loads(line) for line in lines if line.strip())


@contextmanager
def history_of(kubeconfig: Path, namespace: str) -> Iterator[History]:
    """Follow one namespace, and the hold parameters."""
    paths = {
        SETS: f"/apis/disaggregatedset.x-k8s.io/v1/namespaces/{namespace}/disaggregatedsets",
        CHILDREN: f"/apis/leaderworkerset.x-k8s.io/v1/namespaces/{namespace}/leaderworkersets",
        SERVICES: f"/api/v1/namespaces/{namespace}/services",
        PARAMETERS: "/api/v1/namespaces/lockstep/configmaps",
    }
    history = History(kubeconfig, paths)
    try:
        yield history
    finally:
        history.close()
