"""Series stop when nobody waits for them any more, and share the rate of their pool."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from controlplane.operations import looks
from controlplane.operations.clock import Clock
from controlplane.operations.contract import Hold
from controlplane.operations.models import Operation, Run
from controlplane.operations.runs import carry_out_run
from controlplane.operations.services import supersede_operation
from controlplane.operations.verbs import abort_operation, retry_operation
from controlplane.paths import probing, turns
from controlplane.paths.models import Pool, ProbeSeries
from controlplane.paths.requests import Reply
from controlplane.paths.services import SeenPool, record_pools
from controlplane.paths.view import PoolView, find_path
from tests.controlplane.operations.toy import (
    ACTOR,
    Toy,
    finish,
    give,
    make_cluster,
    make_operation,
    new_operation,
)
from tests.controlplane.paths.world import engines, objects
from workers.steps import RUNS

NEW = "bbbbbbbb"
RATE = 20.0
LEAST = 20  # requests of a probe series


def pool_view() -> PoolView:
    """One prefill and one decode group behind a pool."""
    pods = engines("chat", {("prefill", NEW): 1, ("decode", NEW): 1})
    path = find_path(objects("chat", pods=pods), pool="chat")
    assert path is not None
    return path.pool("chat")


class Gateway:
    """Takes what a Line sends, and answers at once."""

    sent: list[tuple[float, str]] = []
    on_request: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, base: str, **_: Any) -> None:
        """Nothing to open."""

    def complete(self, body: Any, **_: Any) -> Reply:
        Gateway.sent.append((time.monotonic(), body["cache_salt"]))
        Gateway.on_request()
        return Reply(200)

    def close(self) -> None:
        """Nothing to close."""


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Gateway]]:
    """Sends go to a list; a piece takes a few of them."""
    monkeypatch.setattr(probing, "Line", Gateway)
    monkeypatch.setattr(probing, "read_pool", lambda kube, series: pool_view())
    monkeypatch.setattr(probing, "read_counters", lambda addresses: {})
    monkeypatch.setattr(probing, "PIECE_S", 0.3)
    Gateway.sent, Gateway.on_request = [], lambda: None
    yield Gateway
    Gateway.on_request = lambda: None


def make_pool(**settings: Any) -> Pool:
    """A pool that may be probed."""
    cluster = make_cluster(watcher_fence=1)
    record_pools(cluster_id=cluster.pk, fence=1, seen=[SeenPool("u1", "models", "chat", {})])
    Pool.objects.update(settings={"probe_url": "http://gateway", "model": "m", "rate": RATE, **settings})
    return Pool.objects.get()


def ask(pool: Pool, key: str, **more: Any) -> ProbeSeries:
    """A series that something asks for."""
    asked: Any = {"kind": "probe", "subject_kind": "operation", "subject_id": "1", "revision": NEW, **more}
    return looks.ask_series(pool=pool, key=key, **asked)


def carry_on(series: ProbeSeries) -> str:
    """One piece, as a worker does it; what came of it."""
    run = Run.objects.get(kind=looks.RUN_SERIES, args__series=series.pk)
    Run.objects.filter(pk=run.pk, state="waiting").update(not_before=Clock())
    return carry_out_run(run_id=run.pk, runs=RUNS, connect=Toy().connect, owner="w")


def carry_to_the_end(series: ProbeSeries) -> str:
    """Pieces until the series is over."""
    until = time.monotonic() + 60
    while (came := carry_on(series)) == "again" and time.monotonic() < until:
        pass
    return came


def standing(users: Any) -> tuple[Toy, Operation, ProbeSeries]:
    """An operation that has come to its second step, which has asked for a series."""
    pool = make_pool()
    toy, operation = Toy(), make_operation(users.operator, cluster=pool.cluster)
    assert toy.advance(operation) == "done"
    step = operation.steps.get(name="toy.two")
    return toy, operation, ask(pool, "first", subject_id=str(operation.pk), step=(step.pk, step.attempt))


def abort(toy: Toy, operation: Operation, users: Any) -> None:
    """A person's word."""
    abort_operation(operation_id=operation.pk, reason="no", actor=ACTOR)


def retry(toy: Toy, operation: Operation, users: Any) -> None:
    """Held meanwhile, and done over by a person."""
    toy.plays["toy.two"] = [give(Hold("red", "It is red.", "Mend it."))]
    assert toy.advance(operation) == "hold"
    retry_operation(operation_id=operation.pk, reason="again", actor=ACTOR)


def supersede(toy: Toy, operation: Operation, users: Any) -> None:
    """Another operation takes its targets over."""
    new = new_operation(operation.cluster, ["toy.end"], ["set-1"])
    supersede_operation(operation_id=operation.pk, new=new, started_by=users.operator, actor=ACTOR)


def end(toy: Toy, operation: Operation, users: Any) -> None:
    """The step goes on without it, and the operation ends."""
    toy.plays["toy.end"] = [finish("succeeded")]
    assert toy.run(operation)[-2:] == ["finish", "not-due"]


@pytest.mark.django_db
@pytest.mark.parametrize("over", [abort, retry, supersede, end])
def test_a_series_that_nobody_waits_for_stops_at_the_next_piece(
    over: Callable[..., None], users: Any, gateway: type[Gateway]
) -> None:
    toy, operation, series = standing(users)
    assert carry_on(series) == "again"
    sent = len(gateway.sent)
    assert 0 < sent < LEAST
    over(toy, operation, users)
    assert carry_on(series) == "failed"
    assert carry_on(series) == "not-due", "once and for all"
    series.refresh_from_db()
    assert (series.state, series.problem["code"], series.verdict) == ("failed", "series-superseded", {})
    assert len(gateway.sent) == sent, "nothing more went through the gateway"


@pytest.mark.django_db
def test_what_was_sent_while_the_operation_turned_round_is_not_judged(
    users: Any, gateway: type[Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "PIECE_S", 30.0)
    toy, operation, series = standing(users)
    sending = probing._send

    def aborted_meanwhile(*args: Any) -> Any:
        answers = sending(*args)
        abort(toy, operation, users)
        return answers

    monkeypatch.setattr(probing, "_send", aborted_meanwhile)
    assert carry_on(series) == "failed"
    series.refresh_from_db()
    assert len(series.results) == len(series.plan["asks"]) >= LEAST, "all of it was sent"
    assert (series.state, series.problem["code"], series.verdict) == ("failed", "series-superseded", {})


@pytest.mark.django_db
def test_a_worker_that_is_lost_while_it_stops_a_series_leaves_that_to_the_next(
    users: Any, gateway: type[Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    toy, operation, series = standing(users)
    abort(toy, operation, users)

    class Killed(BaseException):
        """The process ends here."""

    def killed(**_: Any) -> None:
        raise Killed

    with monkeypatch.context() as broken:
        broken.setattr(looks, "fail_series", killed)
        with pytest.raises(Killed):
            carry_on(series)
    assert Run.objects.get().state == "waiting", "nothing of it was written"
    Run.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    assert carry_on(series) == "failed"
    series.refresh_from_db()
    assert (series.problem["code"], gateway.sent) == ("series-superseded", [])


@pytest.mark.django_db
def test_a_series_that_is_waited_for_is_carried_to_its_verdict(users: Any, gateway: type[Gateway]) -> None:
    _, _, series = standing(users)
    assert carry_to_the_end(series) == "done"
    series.refresh_from_db()
    assert series.state == "judged" and len(series.results) == len(series.plan["asks"]) >= LEAST
    assert len({salt for _, salt in gateway.sent}) == len(gateway.sent), "none of it twice"


# --- the rate of a pool


@pytest.mark.django_db(transaction=True)
def test_two_series_through_one_pool_send_no_faster_than_one(gateway: type[Gateway]) -> None:
    pool = make_pool()
    both = [ask(pool, "a"), ask(pool, "b", subject_kind="person")]

    def worker(series: ProbeSeries) -> str:
        try:
            return carry_to_the_end(series)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as workers:
        assert list(workers.map(worker, both)) == ["done", "done"]
    assert {each.state for each in ProbeSeries.objects.all()} == {"judged"}
    at = sorted(moment for moment, _ in gateway.sent)
    assert len(at) >= 2 * LEAST
    closest = min(later - earlier for earlier, later in zip(at, at[1:], strict=False))
    assert closest >= 0.8 / RATE, "every request keeps its distance from the one before, whose ever it was"
    assert len(at) / (at[-1] - at[0]) <= 1.05 * RATE


@pytest.mark.django_db
def test_series_take_turns_and_whoever_found_the_pool_taken_is_next() -> None:
    pool = make_pool()

    def take(series: int) -> Any:
        return turns.take_turn(pool_id=pool.pk, series_id=series, lasts_s=60)

    first = take(1)
    assert first is not None and (take(2), take(3)) == (None, None)
    turns.end_turn(pool_id=pool.pk, turn=first)
    assert (take(1), take(3)) == (None, None), "it is kept free for the second"
    second = take(2)
    assert second is not None and take(1) is None
    turns.end_turn(pool_id=pool.pk, turn=first)
    assert take(1) is None, "a turn that is over ends nobody else's"
    turns.end_turn(pool_id=pool.pk, turn=second)
    assert take(1) is not None


@pytest.mark.django_db
def test_a_lost_worker_or_one_that_never_comes_blocks_a_pool_for_a_while_only() -> None:
    pool = make_pool()

    def take(series: int) -> Any:
        return turns.take_turn(pool_id=pool.pk, series_id=series, lasts_s=60)

    assert take(1) is not None and take(2) is None
    Pool.objects.update(turn_until=timezone.now() - timedelta(seconds=1))
    assert take(3) is None, "it is the second one's"
    Pool.objects.update(turn_until=timezone.now() - timedelta(seconds=turns.KEPT_FREE_S + 1))
    assert take(3) is not None, "who has not come by now does not come"


@pytest.mark.django_db
def test_a_series_whose_turn_it_is_not_sends_nothing_and_comes_back(gateway: type[Gateway]) -> None:
    pool = make_pool()
    other = turns.take_turn(pool_id=pool.pk, series_id=999, lasts_s=60)
    assert other is not None
    series = ask(pool, "a")
    assert carry_on(series) == "again" and gateway.sent == []
    run = Run.objects.get()
    assert run.attempts == 0 and run.not_before > timezone.now(), (
        "it comes back, and none of it counts as a failure"
    )
    turns.end_turn(pool_id=pool.pk, turn=other)
    assert carry_on(series) == "again" and gateway.sent


@pytest.mark.django_db(transaction=True)
def test_no_transaction_is_open_while_requests_are_on_their_way(gateway: type[Gateway]) -> None:
    from django.db import connection

    open_ones: list[int] = []

    def look() -> None:
        with connection.cursor() as cursor:  # of the sender's thread: a session of its own
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid() AND xact_start IS NOT NULL"
            )
            open_ones.append(cursor.fetchone()[0])
        connection.close()

    gateway.on_request = staticmethod(look)
    assert carry_on(ask(make_pool(), "a")) == "again"
    assert open_ones and set(open_ones) == {0}
