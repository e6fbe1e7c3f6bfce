"""Old runs and the bulk of old series go, in small pages; what something may refer to stays."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.audit.models import AuditEvent
from controlplane.fleet.models import Workload
from controlplane.operations import retention
from controlplane.operations.models import Operation, Run
from controlplane.paths import retention as of_series
from controlplane.paths.models import GoldenOutputs, Pool, ProbeSeries
from controlplane.upgrades.models import Plan
from tests.controlplane.operations.toy import make_cluster, make_operation

pytestmark = pytest.mark.django_db
Json = dict[str, Any]
ANSWER: Json = {
    "number": 0,
    "status": 200,
    "prefill": "chat-prefill-0",
    "decode": "chat-decode-0",
    "tokens": ["a", "b"],
    "logprobs": [-0.1, -0.2],
    "alternatives": [{"a": -0.1}, {"b": -0.2}],
}
SERVED = {key: ANSWER[key] for key in ("number", "status", "prefill", "decode")}


def long_ago() -> datetime:
    """Older than anything is kept."""
    return timezone.now() - timedelta(seconds=settings.LOCKSTEP_PRUNE_AFTER + 60)


def make_pool() -> Pool:
    """A pool."""
    now = timezone.now()
    return Pool.objects.create(
        cluster=make_cluster(), uid="u1", namespace="models", name="chat", observed_at=now
    )


def series(pool: Pool, key: str, **fields: Any) -> ProbeSeries:
    """A judged series of an operation, not saved."""
    usual: Json = {
        "kind": "parity",
        "subject_kind": "operation",
        "subject_id": "1",
        "revision": "bbbbbbbb",
        "state": "judged",
        "plan": {"groups": [["chat-decode-0", "decode", "bbbbbbbb", "uid"]], "asks": [{"prompt": "p1"}]},
        "results": [ANSWER, {**ANSWER, "number": 1}],
        "verdict": {"verdict": "ok", "bound": 0.01},
        "created_at": long_ago(),
        "finished_at": long_ago(),
    }
    return ProbeSeries(pool=pool, key=key, **{**usual, **fields})


def run(**fields: Any) -> Run:
    """A run that has ended, not saved."""
    usual: Json = {"kind": "toy", "state": "done", "not_before": long_ago(), "created_at": long_ago()}
    return Run(**{**usual, "done_at": long_ago(), **fields})


def test_what_an_operation_rests_on_keeps_all_but_the_tokens() -> None:
    pool = make_pool()
    old = series(pool, "old")
    old.save()
    assert retention.prune() == 1
    kept = ProbeSeries.objects.get()
    assert kept.results == [SERVED, {**SERVED, "number": 1}], "who served which request, in order"
    assert (kept.plan, kept.verdict, kept.state) == (old.plan, old.verdict, "judged")
    assert kept.pruned_at is not None
    assert retention.prune() == 0, "once"


def test_a_persons_series_goes_as_a_whole_unless_something_was_made_of_it() -> None:
    pool = make_pool()
    mine = {"subject_kind": "person", "subject_id": "7"}
    series(pool, "a", **mine).save()
    source = series(pool, "b", **mine)
    source.save()
    GoldenOutputs.objects.create(
        pool=pool,
        series=source,
        revision="bbbbbbbb",
        model="m",
        prompt_set="s",
        answers={},
        digest="d",
        verified_at=timezone.now(),
        recorded_at=timezone.now(),
    )
    assert retention.prune() == 2
    assert list(ProbeSeries.objects.values_list("key", "results")) == [
        ("b", [SERVED, {**SERVED, "number": 1}])
    ]


def test_what_is_young_or_running_or_of_an_unfinished_operation_stays(users: Any) -> None:
    pool = make_pool()
    operation = make_operation(users.operator, cluster=pool.cluster)
    series(pool, "young", finished_at=timezone.now()).save()
    series(pool, "running", state="running", finished_at=None).save()
    waited_for = series(pool, "of it", subject_id=str(operation.pk))
    waited_for.save()
    run(done_at=timezone.now()).save()
    run(state="waiting", done_at=None).save()
    assert retention.prune() == 0
    assert all("tokens" in each.results[0] for each in ProbeSeries.objects.all())
    assert Run.objects.count() == 2
    Operation.objects.update(state="aborted")
    assert retention.prune() == 1
    waited_for.refresh_from_db()
    assert "tokens" not in waited_for.results[0]


def test_a_series_that_failed_keeps_its_problem() -> None:
    pool = make_pool()
    series(pool, "a", state="failed", problem={"code": "series-superseded"}, verdict={}, results=[]).save()
    retention.prune()
    kept = ProbeSeries.objects.get()
    assert (kept.problem, kept.results) == ({"code": "series-superseded"}, [])


def test_a_run_that_a_plan_refers_to_stays(users: Any) -> None:
    cluster, now = make_cluster(), timezone.now()
    workload = Workload.objects.create(
        cluster=cluster, uid="w", namespace="models", name="chat", observed_at=now, observed_fence=1
    )
    checked, other = run(cluster=cluster), run(cluster=cluster)
    checked.save()
    other.save()
    Plan.objects.create(
        workload=workload, title="t", draft={}, requester=users.operator, run=checked, created_at=now
    )
    assert retention.prune() == 1
    assert Run.objects.get() == checked


def test_every_page_says_in_the_audit_what_went() -> None:
    pool = make_pool()
    mine, theirs = series(pool, "a", subject_kind="person"), series(pool, "b")
    mine.save()
    theirs.save()
    ended = run()
    ended.save()
    runs = ended.pk
    retention.prune()
    after = dict(AuditEvent.objects.values_list("action", "after"))
    assert (after["series.prune"]["deleted"], after["series.prune"]["without_tokens"]) == (
        [mine.pk],
        [theirs.pk],
    )
    assert after["run.prune"]["deleted"] == [runs]


def test_a_page_whose_record_cannot_be_written_is_not_pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    series(make_pool(), "a", subject_kind="person").save()

    def lost(**_: Any) -> None:
        raise RuntimeError("the worker ends here")

    with monkeypatch.context() as broken:
        broken.setattr(of_series, "record_event", lost)
        with pytest.raises(RuntimeError):
            retention.prune()
    assert ProbeSeries.objects.count() == 1
    assert retention.prune() == 1


def many(pool: Pool, count: int) -> None:
    """So many series, half of them people's, and so many runs."""
    who = ("operation", "person")
    ProbeSeries.objects.bulk_create([series(pool, str(n), subject_kind=who[n % 2]) for n in range(count)])
    Run.objects.bulk_create([run() for _ in range(count)])


def test_many_rows_go_in_small_transactions_and_a_round_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    many(make_pool(), 2_000)
    with monkeypatch.context() as short:
        short.setattr(retention, "BUDGET_S", 0.0)
        with CaptureQueriesContext(connection) as asked:
            assert retention.prune() == 2 * retention.PAGE, "one page of each, whatever there is"
        assert len(asked) < 30, "a page does not ask row by row"
    begun = time.monotonic()
    rounds = 0
    while retention.prune():
        rounds += 1
    assert rounds < 40 and time.monotonic() - begun < 60
    assert (ProbeSeries.objects.count(), Run.objects.count()) == (1_000, 0)
    assert not ProbeSeries.objects.filter(results__0__has_key="tokens").exists()


@pytest.mark.django_db(transaction=True)
def test_two_rounds_at_once_share_the_work() -> None:
    many(make_pool(), 600)

    def round_of_it(_: int) -> int:
        try:
            return retention.prune()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as workers:
        done = sum(workers.map(round_of_it, range(2)))
    while left := retention.prune():
        done += left
    assert done == 1_200, "no row twice, none left"
    assert (ProbeSeries.objects.count(), Run.objects.count()) == (300, 0)


def test_the_oldest_are_found_by_an_index() -> None:
    many(make_pool(), 500)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(
            "EXPLAIN SELECT id FROM paths_probeseries WHERE pruned_at IS NULL AND NOT state = 'running'"
            " AND finished_at < now() ORDER BY finished_at LIMIT 100"
        )
        assert "series_to_prune" in str(cursor.fetchall())
        cursor.execute(
            "EXPLAIN SELECT id FROM operations_run WHERE NOT state = 'waiting' AND done_at < now()"
            " ORDER BY done_at LIMIT 100"
        )
        assert "runs_to_prune" in str(cursor.fetchall())
