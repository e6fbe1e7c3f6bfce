"""An observer that knows nothing of Lockstep: every LeaderWorkerSet write of one set, by a watch of its own."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import urllib3
import yaml

Key = tuple[str, str, str]  # slice, revision, role
LABEL = "disaggregatedset.x-k8s.io/"


@dataclass
class Seen:
    """What the observer saw, in the order of the API server: (key, groups wanted), the live counts after each, and
    the ready groups after each change of those."""

    writes: list[tuple[Key, int]] = field(default_factory=list)
    states: list[dict[Key, int]] = field(default_factory=list)
    ready: list[dict[Key, int]] = field(default_factory=list)
    _now: dict[Key, int] = field(default_factory=dict)

    def note(self, kind: str, item: dict[str, object]) -> None:
        """One watch event."""
        metadata: dict[str, dict[str, str]] = item["metadata"]  # type: ignore[assignment]
        labels = metadata["labels"]
        key = (labels.get(LABEL + "slice", "0"), labels[LABEL + "revision"], labels[LABEL + "role"])
        status: dict[str, int] = item.get("status", {})  # type: ignore[assignment]
        self._note_ready(key, 0 if kind == "DELETED" else int(status.get("readyReplicas", 0)))
        count = 0 if kind == "DELETED" else int(item["spec"]["replicas"])  # type: ignore[index]
        if kind == "DELETED":
            self._now.pop(key, None)
        elif self._now.get(key) == count:
            return
        else:
            self._now[key] = count
        self.writes.append((key, count))
        self.states.append(dict(self._now))

    def _note_ready(self, key: Key, count: int) -> None:
        last = self.ready[-1] if self.ready else {}
        if last.get(key, 0) != count:
            self.ready.append({**last, key: count})

    def least_ready(self, role: str, *, start: int) -> int:
        """The fewest ready groups of a role over all revisions, from the moment on when `start` were there."""
        sums = [sum(c for k, c in state.items() if k[2] == role) for state in self.ready]
        return min(sums[sums.index(start) :])

    def most(self, revision: str, role: str, *, slice_key: str = "0") -> int:
        """The most groups that this side ever had."""
        return max((s.get((slice_key, revision, role), 0) for s in self.states), default=0)

    def total_peak(self, role: str) -> int:
        """The most groups of a role over all revisions at one time."""
        return max((sum(c for k, c in s.items() if k[2] == role) for s in self.states), default=0)


@contextmanager
def observing(kubeconfig: Path, namespace: str, name: str) -> Iterator[Seen]:
    """Watch all LeaderWorkerSets of a set for as long as the block runs."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster = config["clusters"][0]["cluster"]
    pool = urllib3.PoolManager(
        retries=False,
        ca_cert_data=base64.b64decode(cluster["certificate-authority-data"]).decode(),
        headers={"Authorization": f"Bearer {config['users'][0]['user']['token']}"},
    )
    url = (
        f"{cluster['server']}/apis/leaderworkerset.x-k8s.io/v1/namespaces/{namespace}/leaderworkersets"
        f"?watch=true&labelSelector={LABEL.replace('/', '%2F')}name%3D{name}"
    )
    seen, ready, ended = Seen(), threading.Event(), threading.Event()

    def follow() -> None:
        while not ended.is_set():
            try:
                answer = pool.request("GET", url, preload_content=False, timeout=urllib3.Timeout(5, 2))
                ready.set()
                rest = b""
                for chunk in answer.stream(65536):
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        event = json.loads(line)
                        if event["type"] in {"ADDED", "MODIFIED", "DELETED"}:
                            seen.note(event["type"], event["object"])
            except urllib3.exceptions.HTTPError:
                continue  # the idle limit, or the server is being restarted: begin again, from what is there

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    assert ready.wait(10), "the observer's watch did not start"
    try:
        yield seen
    finally:
        ended.set()
        thread.join(5)
