"""A reflector keeps one kind of object of one cluster in memory: list, then watch, for ever.

It never spins: whatever goes wrong (403, 5xx, a watch that ends at once, a server that is away) is followed
by a full-jitter back-off of up to 30 s. It never goes quiet: TCP keepalive, a read timeout above the
interval of bookmarks (one a minute) and a periodic list bound how old its picture can be without saying so
(`age`).
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog

from controlplane.kube.client import Kube, Watch
from controlplane.kube.errors import Expired, KubeError, TooManyRequests
from controlplane.kube.resources import Resource

Json = dict[str, Any]
Key = tuple[str, str]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Change:
    """One object changed: `old` is None for a new one, `new` for one that is gone. Both are projections."""

    resource: Resource
    key: Key
    old: Json | None
    new: Json | None


@dataclass(frozen=True, slots=True)
class Pace:
    """Times of a reflector in seconds; tests make them short."""

    server_timeout: int = 290
    read_timeout: float = 130
    relist_every: float = 600
    backoff_base: float = 0.5
    backoff_cap: float = 30
    # A watch that lived shorter than this did not work, whatever its status was.
    short_watch: float = 5
    # Bookmarks come once a minute: silence beyond this means that the picture may be old.
    quiet: float = 75


def backoff_limit(failures: int, *, base: float, cap: float) -> float:
    """Upper bound in seconds of the wait after `failures` failures in a row; the wait is uniform below it."""
    return float(min(cap, base * 2 ** min(failures, 16)))


class Reflector:
    """Keeps `store` (key (namespace, name) → projected object) equal to the cluster, on a thread of its own.

    `project` cuts an object down to what is needed, before it is kept. `on_change` is called on that thread
    for every change, after the store has it; an exception from it ends nothing but is logged. `synced` is
    set once the first list is complete. `store` may be read from other threads by key or by
    `list(store.values())`.
    """

    def __init__(
        self,
        kube: Kube,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        project: Callable[[Json], Json] = lambda item: item,
        on_change: Callable[[Change], None] = lambda change: None,
        on_listed: Callable[[], None] = lambda: None,
        pace: Pace | None = None,
    ) -> None:
        self.resource = resource
        self.store: dict[Key, Json] = {}
        self.synced = threading.Event()
        self.problem = ""
        self.lists = 0
        self._kube = kube
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._project = project
        self._on_change = on_change
        self._on_listed = on_listed
        self._pace = pace or Pace()
        self._random = random.Random()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._watch: Watch | None = None
        self._contact = 0.0
        self._opened: float | None = None
        self._version = ""
        self._relist_at = 0.0
        self._thread = threading.Thread(target=self._run, name=f"reflect-{resource.plural}", daemon=True)

    def start(self) -> Reflector:
        """Begin on a thread of its own."""
        self._thread.start()
        return self

    def stop(self, *, wait: float = 2) -> bool:
        """End, also out of a blocked read; True when the thread has ended within `wait` seconds."""
        self._stopping.set()
        with self._lock:
            if self._watch:
                self._watch.close()
        if self._thread.is_alive():
            self._thread.join(wait)
        return not self._thread.is_alive()

    @property
    def resource_version(self) -> str:
        """Where the next watch goes on; empty before the first list and after an expiry."""
        return self._version

    @property
    def age(self) -> float:
        """Seconds since the API server last proved the picture current (a list, an event, a bookmark)."""
        return time.monotonic() - self._contact if self._contact else float("inf")

    @property
    def current(self) -> bool:
        """Whether the picture may be called live: complete once, and a watch stands that is not silent."""
        return self.synced.is_set() and self._opened is not None and self.age <= self._pace.quiet

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            self._opened = None
            wait = 0.0
            try:
                self._list_if_due()
                self._follow()
                self._note("")
            except Expired:
                self._version = ""
                log.info("watch_expired", resource=self.resource.plural)
            except KubeError as error:
                wait = error.retry_after if isinstance(error, TooManyRequests) else 0.0
                self._note(f"{error.verb}: {error.message}")
            except Exception as error:  # a thread that dies would leave a picture that looks alive
                self._version = ""
                self._note(f"{type(error).__name__}: {error}")
                log.exception("reflector_failed", resource=self.resource.plural)
            failures = 0 if self._worked() else failures + 1
            self._pause(failures, at_least=wait)

    def _worked(self) -> bool:
        """Whether the watch that has just ended was one at all; marks it as ended."""
        opened, self._opened = self._opened, None
        return opened is not None and time.monotonic() - opened >= self._pace.short_watch

    def _pause(self, failures: int, *, at_least: float) -> None:
        limit = backoff_limit(failures, base=self._pace.backoff_base, cap=self._pace.backoff_cap)
        wait = max(at_least, self._random.uniform(0, limit)) if failures or at_least else 0.0
        self._stopping.wait(wait)

    def _note(self, problem: str) -> None:
        if problem and problem != self.problem:
            log.warning("reflector_problem", resource=self.resource.plural, problem=problem)
        self.problem = problem

    def _list_if_due(self) -> None:
        if self._version and time.monotonic() < self._relist_at:
            return
        listing = self._kube.list(
            self.resource,
            self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            each=self._project,
        )
        self._contact = time.monotonic()
        # Spread the lists of several reflectors over time.
        self._relist_at = self._contact + self._pace.relist_every * self._random.uniform(0.8, 1.2)
        present = {_key(item): item for item in listing.items}
        for key in [key for key in self.store if key not in present]:
            self._remove(key)
        for key, item in present.items():
            self._put(key, item)
        self._version = listing.resource_version
        self.lists += 1
        self.problem = ""
        self.synced.set()
        self._tell(self._on_listed)

    def _follow(self) -> None:
        remaining = max(1.0, self._relist_at - time.monotonic())
        watch = self._kube.watch(
            self.resource,
            self._namespace,
            resource_version=self._version,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            server_timeout=int(max(1, min(self._pace.server_timeout, remaining))),
            read_timeout=self._pace.read_timeout,
        )
        with self._lock:
            self._watch = watch
        try:
            if self._stopping.is_set():
                return
            self._contact = self._opened = time.monotonic()
            self._note("")
            for kind, item in watch:
                self._contact = time.monotonic()
                self._take(kind, item)
        finally:
            with self._lock:
                self._watch = None
            watch.close()

    def _take(self, kind: str, item: Json) -> None:
        if kind != "BOOKMARK":
            item.setdefault("apiVersion", self.resource.api_version)
            item.setdefault("kind", self.resource.kind)
            if kind == "DELETED":
                self._remove(_key(item))
            else:
                self._put(_key(item), self._project(item))
        # Only after the store has it: a failure in between must not skip the event.
        self._version = item["metadata"]["resourceVersion"]

    def _put(self, key: Key, item: Json) -> None:
        old = self.store.get(key)
        if old == item:
            return
        key = (sys.intern(key[0]), sys.intern(key[1]))
        self.store[key] = item
        self._tell(lambda: self._on_change(Change(self.resource, key, old, item)))

    def _remove(self, key: Key) -> None:
        old = self.store.pop(key, None)
        if old is not None:
            self._tell(lambda: self._on_change(Change(self.resource, key, old, None)))

    def _tell(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            log.exception("change_not_handled", resource=self.resource.plural)


def _key(item: Json) -> Key:
    metadata = item["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
