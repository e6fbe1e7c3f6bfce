"""The reflector against an API that drops, refuses, forgets and falls silent."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.kube.client import Kube
from controlplane.kube.reflector import Change, Pace, Reflector, backoff_limit
from controlplane.kube.resources import PODS
from tests.controlplane.kube.fake_api import Answer, FakeApi, wait_until

QUICK = Pace(
    server_timeout=20,
    read_timeout=10,
    relist_every=600,
    backoff_base=0.02,
    backoff_cap=0.1,
    short_watch=0.05,
    quiet=5,
)


@pytest.fixture
def fake() -> Iterator[FakeApi]:
    with FakeApi() as api:
        yield api


@pytest.fixture
def reflect(fake: FakeApi) -> Iterator[Callable[..., Reflector]]:
    """`reflect(**pace)` starts a reflector of the fake API; `.changes` collects what it told."""
    running: list[Reflector] = []
    kube = Kube.for_server(fake.url, timeout=1)

    def start(**pace: Any) -> Reflector:
        changes: list[Change] = []
        reflector = Reflector(
            kube, PODS, on_change=changes.append, pace=dataclasses.replace(QUICK, **pace), project=slim
        )
        reflector.changes = changes  # type: ignore[attr-defined]
        running.append(reflector)
        return reflector.start()

    yield start
    for each in running:
        assert each.stop(), "a reflector ends within two seconds, also out of a blocked read"
    kube.close()


def slim(item: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {name: item["metadata"][name] for name in ("name", "namespace", "labels")}}


def names(reflector: Reflector) -> set[str]:
    return {key[1] for key in list(reflector.store)}


def test_lists_then_follows(fake: FakeApi, reflect: Callable[..., Reflector]) -> None:
    fake.put("a")
    reflector = reflect()
    assert reflector.synced.wait(5)
    assert names(reflector) == {"a"}
    fake.put("b", x="1")
    fake.put("a", x="2")
    fake.drop("a")
    wait_until("the picture is that of the cluster", lambda: names(reflector) == {"b"})
    wait_until("the watch stands", lambda: reflector.current)
    told = [(each.key[1], each.old is None, each.new is None) for each in reflector.changes]  # type: ignore[attr-defined]
    assert told == [("a", True, False), ("b", True, False), ("a", False, False), ("a", False, True)]
    assert fake.count("list") == 1
    assert reflector.store[("work", "b")] == {
        "metadata": {"name": "b", "namespace": "work", "labels": {"x": "1"}}
    }


def test_a_dropped_watch_goes_on_where_it_was(fake: FakeApi, reflect: Callable[..., Reflector]) -> None:
    fake.put("a")
    reflector = reflect()
    wait_until("the watch stands", lambda: fake.sockets)
    fake.put("b")
    wait_until("b is seen", lambda: names(reflector) == {"a", "b"})
    fake.drop_watches()
    fake.put("c")
    wait_until("c is seen over a new watch", lambda: names(reflector) == {"a", "b", "c"})
    assert fake.count("list") == 1, "a dropped watch is no reason to list again"
    assert int(fake.asked[-1].query["resourceVersion"]) == fake.version - 1


def test_a_bookmark_moves_the_version_on(fake: FakeApi, reflect: Callable[..., Reflector]) -> None:
    fake.put("a")
    reflector = reflect()
    wait_until("the watch stands", lambda: fake.sockets)
    fake.bookmark(5000)
    fake.oldest = 4000  # everything before the bookmark has been compacted away
    wait_until("the bookmark is taken", lambda: reflector.resource_version == "5000")
    before = fake.count("watch")
    fake.drop_watches()
    wait_until("another watch", lambda: fake.count("watch") > before)
    assert fake.asked[-1].query["resourceVersion"] == "5000"
    assert fake.count("list") == 1


@pytest.mark.parametrize("as_event", [True, False])
def test_410_lists_again_and_sees_what_was_deleted_meanwhile(
    fake: FakeApi, reflect: Callable[..., Reflector], as_event: bool
) -> None:
    fake.put("a")
    fake.put("b")
    reflector = reflect()
    wait_until("the watch stands", lambda: fake.sockets)
    fake.drop("a", silently=True)
    if as_event:
        fake.send_error(410)
    else:
        fake.oldest = fake.version
        fake.drop_watches()
    wait_until("the deletion is found by a list", lambda: names(reflector) == {"b"})
    assert fake.count("list") == 2
    assert reflector.changes[-1].new is None  # type: ignore[attr-defined]


@pytest.mark.parametrize("status", [403, 429, 500, 503])
def test_a_failing_list_is_retried_with_pauses(
    fake: FakeApi, reflect: Callable[..., Reflector], status: int
) -> None:
    fake.lists.extend([Answer(status, {"message": "no"})] * 4)
    fake.put("a")
    reflector = reflect()
    wait_until("the problem is said", lambda: reflector.problem)
    assert not reflector.synced.is_set()
    assert reflector.age == float("inf")
    assert reflector.synced.wait(5)
    assert names(reflector) == {"a"}
    assert reflector.problem == ""


@pytest.mark.parametrize("answer", [Answer(403, {"message": "no"}), Answer(500, {}), Answer(200, "")])
def test_a_watch_that_never_works_does_not_spin(
    fake: FakeApi, reflect: Callable[..., Reflector], answer: Answer
) -> None:
    """The package's own informer made thousands of requests a second here."""
    fake.always_watch = answer
    reflector = reflect(backoff_base=0.1, backoff_cap=0.4)
    assert reflector.synced.wait(5)
    time.sleep(2)
    assert 3 <= fake.count("watch") <= 40
    assert fake.count("list") == 1
    assert not reflector.current
    fake.always_watch = None
    fake.put("late")
    wait_until("it recovers", lambda: names(reflector) == {"late"})
    wait_until("it is live again", lambda: reflector.current)


def test_a_problem_is_over_as_soon_as_a_watch_stands_again(
    fake: FakeApi, reflect: Callable[..., Reflector]
) -> None:
    reflector = reflect()
    wait_until("the watch stands", lambda: fake.sockets)
    fake.always_watch = Answer(503, {"message": "away"})
    fake.drop_watches()
    wait_until("the problem is said", lambda: "away" in reflector.problem)
    fake.always_watch = None
    wait_until("it is live again", lambda: reflector.current)
    wait_until("nothing is said any more", lambda: not reflector.problem, limit=2)
    assert fake.count("list") == 1


def test_an_endless_410_does_not_spin(fake: FakeApi, reflect: Callable[..., Reflector]) -> None:
    fake.oldest = 10**9
    reflect(backoff_base=0.1, backoff_cap=0.4)
    time.sleep(2)
    assert 3 <= fake.count("list") <= 40


def test_429_is_obeyed(fake: FakeApi, reflect: Callable[..., Reflector]) -> None:
    fake.lists.append(Answer(429, {"message": "slow down"}, headers={"Retry-After": "1"}))
    started = time.monotonic()
    reflector = reflect()
    assert reflector.synced.wait(5)
    assert time.monotonic() - started >= 1


def test_a_half_open_connection_is_noticed(fake: FakeApi, reflect: Callable[..., Reflector]) -> None:
    fake.put("a")
    reflector = reflect(read_timeout=0.5, quiet=0.3)
    wait_until("the watch stands", lambda: reflector.current)
    fake.frozen = True  # the connection stands, but nothing comes over it any more
    fake.put("b")
    wait_until("the picture is called old", lambda: not reflector.current, limit=2)
    assert names(reflector) == {"a"}
    wait_until("the silent watch is given up", lambda: fake.count("watch") > 1)
    fake.frozen = False
    wait_until("b is seen", lambda: names(reflector) == {"a", "b"})


def test_lists_again_from_time_to_time_for_what_a_watch_never_told(
    fake: FakeApi, reflect: Callable[..., Reflector]
) -> None:
    fake.put("a")
    reflector = reflect(relist_every=1.5)
    wait_until("the watch stands", lambda: fake.sockets)
    fake.drop("a", silently=True)
    wait_until("a list finds the deletion", lambda: names(reflector) == set(), limit=8)


def test_a_server_that_is_away_is_waited_for() -> None:
    api = FakeApi()
    with api:
        address = api.url
    with Kube.for_server(address, timeout=0.5) as kube:
        reflector = Reflector(kube, PODS, pace=QUICK).start()
        wait_until("the problem is said", lambda: reflector.problem)
        assert not reflector.current
        assert reflector.stop()


def test_an_error_of_the_listener_ends_nothing(fake: FakeApi) -> None:
    def fail(change: Change) -> None:
        raise RuntimeError("no")

    with Kube.for_server(fake.url, timeout=1) as kube:
        fake.put("a")
        reflector = Reflector(kube, PODS, pace=QUICK, on_change=fail).start()
        assert reflector.synced.wait(5)
        fake.put("b")
        wait_until("b is kept", lambda: names(reflector) == {"a", "b"})
        assert reflector.stop()


@given(failures=st.integers(0, 10_000))
def test_the_bound_of_the_pause_grows_to_its_cap_and_no_further(failures: int) -> None:
    bound = backoff_limit(failures, base=0.5, cap=30)
    assert 0.5 <= bound <= 30
    assert backoff_limit(failures + 1, base=0.5, cap=30) >= bound
    assert failures < 6 or bound == 30
