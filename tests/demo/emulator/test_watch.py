"""Watches over HTTP: what is told, in which order, from when on, and how they end."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import pytest
import urllib3

from deploy.demo.emulator import Emulator, streams
from deploy.demo.emulator.store import Store, User
from deploy.rig import Api, ApiError, until

Doc = dict[str, Any]


def where(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps" + (f"/{name}" if name else "")


def put(client: Api, namespace: str, name: str, **labels: str) -> Doc:
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})


def version(client: Api, namespace: str) -> str:
    found: str = client.get(where(namespace))["metadata"]["resourceVersion"]
    return found


class Watching:
    """A watch that somebody else reads."""

    def __init__(self, emulator: Emulator, path: str, query: Doc) -> None:
        self.events: queue.Queue[Doc] = queue.Queue()
        self.ended: str | None = None
        self._api = Api(emulator.kubeconfig())
        self._path, self._query = path, query
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        url = f"{self._api._server}{self._path}?{urlencode({'watch': 'true', **self._query})}"
        answer = self._api._pool.request("GET", url, preload_content=False, timeout=30.0)
        try:
            waiting = b""
            for chunk in answer.stream():
                *lines, waiting = (waiting + chunk).split(b"\n")
                for line in lines:
                    self.events.put(json.loads(line))
            self.ended = "closed"
        except urllib3.exceptions.HTTPError as problem:
            self.ended = type(problem).__name__

    def next(self) -> tuple[str, str]:
        event = self.events.get(timeout=10)
        return event["type"], event["object"]["metadata"].get("name", "")

    def end(self) -> str:
        self._thread.join(10)
        assert self.ended is not None
        return self.ended


@contextmanager
def watching(emulator: Emulator, path: str, **query: Any) -> Iterator[Watching]:
    """An open watch: it is known to the server when this returns."""
    before = emulator.call(lambda: len(emulator.api.streams.open))
    made = Watching(emulator, path, query)
    until("the watch", lambda: emulator.call(lambda: len(emulator.api.streams.open)) > before, every_s=0.01)
    yield made
    emulator.drop_watches()


def test_changes_after_a_list_come_in_order_and_once(emulator: Emulator, client: Api, namespace: str) -> None:
    put(client, namespace, "before")
    since = version(client, namespace)
    put(client, namespace, "between")
    with watching(emulator, where(namespace), resourceVersion=since) as watch:
        client.patch(where(namespace, "before"), {"data": {"a": "b"}})
        client.delete(where(namespace, "between"))
        seen = [watch.next() for _ in range(3)]
    assert seen == [("ADDED", "between"), ("MODIFIED", "before"), ("DELETED", "between")]


def test_an_event_comes_within_milliseconds(emulator: Emulator, client: Api, namespace: str) -> None:
    lags = []
    with watching(emulator, where(namespace), resourceVersion=version(client, namespace)) as watch:
        for index in range(20):
            put(client, namespace, f"c{index}")
            answered = time.monotonic()
            assert watch.next() == ("ADDED", f"c{index}")
            lags.append(time.monotonic() - answered)
    assert sorted(lags)[10] < 0.1, "counted from the answer; a busy machine is given time"


def test_a_selector_sees_things_come_into_sight_and_leave_it(
    emulator: Emulator, client: Api, namespace: str
) -> None:
    since = version(client, namespace)
    query = {"labelSelector": "seen=yes", "resourceVersion": since}
    with watching(emulator, where(namespace), **query) as watch:
        put(client, namespace, "other")
        put(client, namespace, "mine", seen="no")
        for value in ("yes", "yes", "no"):
            body = {"metadata": {"labels": {"seen": value}}, "data": {"n": str(time.monotonic())}}
            client.patch(where(namespace, "mine"), body)
        seen = [watch.next() for _ in range(3)]
    assert seen == [("ADDED", "mine"), ("MODIFIED", "mine"), ("DELETED", "mine")]


def test_a_deletion_has_the_last_state_and_a_version_of_its_own(
    emulator: Emulator, client: Api, namespace: str
) -> None:
    made = put(client, namespace, "c", a="b")
    with watching(emulator, where(namespace), resourceVersion=version(client, namespace)) as watch:
        client.delete(where(namespace, "c"))
        event = watch.events.get(timeout=10)
    assert event["object"]["metadata"]["labels"] == {"a": "b"}
    assert int(event["object"]["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    assert event["object"]["kind"] == "ConfigMap"


def test_without_a_version_it_begins_with_what_is_there(
    emulator: Emulator, client: Api, namespace: str
) -> None:
    put(client, namespace, "there")
    with watching(emulator, where(namespace)) as watch:
        assert watch.next() == ("ADDED", "there")
        put(client, namespace, "new")
        assert watch.next() == ("ADDED", "new")


def test_a_list_by_watch_says_where_it_ends(emulator: Emulator, client: Api, namespace: str) -> None:
    put(client, namespace, "there")
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    with watching(emulator, where(namespace), **query) as watch:
        assert watch.next() == ("ADDED", "there")
        mark = watch.events.get(timeout=10)
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_a_quiet_watch_gets_bookmarks(
    emulator: Emulator, client: Api, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "BOOKMARK_EVERY_S", 0.2)
    since = version(client, namespace)
    query = {"allowWatchBookmarks": "true", "resourceVersion": since}
    with watching(emulator, where(namespace), **query) as watch:
        put(client, "default", f"elsewhere-{namespace}")
        while int((mark := watch.events.get(timeout=10))["object"]["metadata"]["resourceVersion"]) <= int(
            since
        ):
            pass
    assert mark["type"] == "BOOKMARK" and mark["object"]["kind"] == "ConfigMap"


def test_it_ends_when_its_time_is_up(emulator: Emulator, client: Api, namespace: str) -> None:
    since = version(client, namespace)
    query = {"timeoutSeconds": "1", "allowWatchBookmarks": "true", "resourceVersion": since}
    with watching(emulator, where(namespace), **query) as watch:
        assert watch.end() == "closed"
    assert watch.next()[0] == "BOOKMARK", "so that the next one need not begin from far behind"


def test_a_version_that_is_too_old_is_gone(emulator: Emulator, client: Api, namespace: str) -> None:
    since = version(client, namespace)
    put(client, namespace, "c")
    emulator.forget_history(["configmaps"])
    with pytest.raises(ApiError) as problem:
        next(client.watch(where(namespace), version=since, limit_s=5))
    assert (problem.value.status, problem.value.reason) == (410, "Expired")
    assert problem.value.message.startswith("too old resource version: ")


def test_the_history_of_a_kind_is_finite() -> None:
    with Emulator(store=Store(history=5)) as small:
        client = small.client()
        since = version(client, "default")
        for index in range(5):
            put(client, "default", f"c{index}")
        assert next(client.watch(where("default"), version=since))["object"]["metadata"]["name"] == "c0"
        put(client, "default", "c5")
        with pytest.raises(ApiError, match="too old resource version"):
            next(client.watch(where("default"), version=since))


def test_a_dropped_watch_breaks_without_a_word(emulator: Emulator, client: Api, namespace: str) -> None:
    with watching(emulator, where(namespace), resourceVersion=version(client, namespace)) as watch:
        assert emulator.drop_watches(["pods"]) == 0 and emulator.drop_watches(users=["nobody"]) == 0
        assert emulator.drop_watches(["configmaps"], ["rig-admin"]) == 1
        assert watch.end() == "ProtocolError"


def test_a_paused_server_tells_nothing_until_it_goes_on(
    emulator: Emulator, client: Api, namespace: str
) -> None:
    with watching(emulator, where(namespace), resourceVersion=version(client, namespace)) as watch:
        emulator.pause("apiserver")
        try:
            config = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "c", "namespace": namespace},
            }
            emulator.call(lambda: emulator.store.acting_as(User("somebody")).create(config))
            with pytest.raises(queue.Empty):
                watch.events.get(timeout=0.3)
        finally:
            emulator.resume("apiserver")
        assert watch.next() == ("ADDED", "c")


def test_a_watcher_that_goes_away_is_forgotten(emulator: Emulator, client: Api, namespace: str) -> None:
    put(client, namespace, "there")
    events = client.watch(where(namespace), version="0")
    next(events)
    assert emulator.call(lambda: len(emulator.api.streams.open)) == 1
    events.close()  # type: ignore[attr-defined]
    until("no watch", lambda: emulator.call(lambda: not emulator.api.streams.open))
