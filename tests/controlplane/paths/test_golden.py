"""Golden outputs: recorded by who vouches for them, asked for with their own salts, compared with while they hold."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rest_framework.test import APIClient

from controlplane.audit.models import AuditEvent
from controlplane.paths import golden as golden_outputs
from controlplane.paths import judging
from controlplane.paths.golden import golden_of_series, pools_without_golden
from controlplane.paths.models import GoldenOutputs, Pool, ProbeSeries
from controlplane.paths.pool_settings import read_settings
from controlplane.paths.recording import record_golden_of, withdraw_voucher
from policy.canonical import digest
from policy.parity import Answer
from policy.probes import fixed_prompts
from tests.conftest import Cast
from tests.controlplane.operations.toy import ACTOR, make_cluster
from tests.controlplane.paths.golden_world import NEW, OLD, carried_out, make_pool, usable, view

pytestmark = pytest.mark.django_db
Api = Callable[..., APIClient]
Json = dict[str, Any]


@pytest.fixture
def pool(db: None) -> Pool:
    return make_pool(make_cluster(watcher_fence=5))


def post(client: APIClient, path: str, reason: str = "we know it", version: int | None = None) -> Any:
    """A POST with a reason and a fresh key."""
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    if version is not None:
        headers["If-Match"] = f'"{version}"'
    return client.post(f"/api/v1/{path}", {"reason": reason}, headers=headers)


def record(client: APIClient, series: ProbeSeries) -> Any:
    return post(client, f"probe-series/{series.pk}/record-golden")


def test_without_golden_outputs_the_path_is_asked_twice_and_nothing_is_green(pool: Pool) -> None:
    found = carried_out(pool)
    assert {ask["pod"] for ask in found.plan["asks"]} == {""}, "no decode pod is asked directly"
    assert len(found.plan["asks"]) == 2 * len(fixed_prompts())
    assert len({ask["salt"] for ask in found.plan["asks"]}) == len(fixed_prompts())
    assert (found.verdict["verdict"], found.verdict["reason"]) == ("not-evaluable", "no-reference")
    assert "record its answers as golden outputs" in found.verdict["next_action"]
    assert found.verdict["golden"] is None


def test_a_person_records_them_and_later_answers_are_compared_with_them(
    pool: Pool, users: Cast, api: Api
) -> None:
    first = carried_out(pool)
    said = record(api(users.operator), first)
    assert said.status_code == 201, said.json()
    assert said["ETag"] == '"1"' and said.json()["verified_by"] == [
        {"kind": "person", "id": users.operator.pk}
    ]
    good = carried_out(pool, NEW)
    assert {ask["prompt"]: ask["salt"] for ask in good.plan["asks"]} == {
        ask["prompt"]: ask["salt"] for ask in first.plan["asks"]
    }
    assert (good.verdict["verdict"], good.verdict["reference"]) == ("ok", "golden"), good.verdict
    assert (good.verdict["jitter"], good.verdict["golden"]["revision"]) == (0.0, OLD)
    bad = carried_out(pool, NEW, wrong=True)
    assert bad.verdict["verdict"] == "red", bad.verdict["sentence"]
    event = AuditEvent.objects.get(action="pool.record_golden")
    assert event.after["series"] == first.pk and event.reason == "we know it"


def test_what_a_digest_covers_is_what_is_read_back(pool: Pool, users: Cast, api: Api) -> None:
    record(api(users.operator), carried_out(pool))
    row = GoldenOutputs.objects.get()
    shown = api(users.viewer).get(f"/api/v1/golden-outputs/{row.pk}").json()
    assert shown["digest"] == digest({key: shown[key] for key in ("model", "prompt_set", "answers")})
    assert len(shown["answers"]) == len(fixed_prompts())
    listed = api(users.viewer).get("/api/v1/golden-outputs").json()["results"]
    assert [each["id"] for each in listed] == [row.pk] and "answers" not in listed[0]
    assert api(users.outsider).get(f"/api/v1/golden-outputs/{row.pk}").status_code == 404


def test_only_who_may_manage_combinations_vouches(pool: Pool, users: Cast, api: Api) -> None:
    series = carried_out(pool)
    for other in (users.viewer, users.approver):
        assert record(api(other), series).status_code == 403
    assert record(api(users.outsider), series).status_code == 404
    assert record(api(users.operator), series).status_code == 201
    again = record(api(users.operator), series)
    assert again.status_code == 201 and again["ETag"] == '"1"', "said twice it is said"
    assert AuditEvent.objects.filter(action="pool.record_golden", outcome="done").count() == 1


@pytest.mark.parametrize(
    ("said", "reason"),
    [({"cached": 0}, "not-disaggregated"), ({"status": 503}, "too-few-answers")],
)
def test_answers_that_prove_nothing_are_refused(
    pool: Pool, users: Cast, api: Api, said: Json, reason: str
) -> None:
    refused = record(api(users.operator), carried_out(pool, **said))
    assert (refused.status_code, refused.json()["code"]) == (409, "golden-unfit")
    assert refused.json()["facts"]["reason"] == reason and refused.json()["next_action"]
    assert usable() == []


def test_what_an_operation_judges_itself_by_is_recorded_by_no_person(
    pool: Pool, users: Cast, api: Api
) -> None:
    own = carried_out(pool, NEW, subject=("operation", "7"))
    assert own.verdict["reason"] == "no-reference"
    refused = record(api(users.operator), own)
    assert (refused.status_code, refused.json()["facts"]["reason"]) == (409, "of-an-operation")
    assert usable() == [] and "Operation 7" in refused.json()["detail"]


def test_a_series_of_another_kind_or_of_no_revision_is_refused(pool: Pool, users: Cast, api: Api) -> None:
    direct = make_pool(pool.cluster, reference="direct")
    refused = record(api(users.operator), carried_out(direct))
    assert refused.json()["facts"]["reason"] == "too-few-answers", "the path was asked once"
    anyone = carried_out(make_pool(pool.cluster), revision="")
    assert record(api(users.operator), anyone).json()["facts"]["reason"] == "not-one-revision"
    old = carried_out(pool)
    ProbeSeries.objects.filter(pk=old.pk).update(pruned_at=pool.observed_at)
    assert record(api(users.operator), old).json()["facts"]["reason"] == "pruned"
    open_one = ProbeSeries.objects.create(pool=pool, kind="parity", key="x", created_at=pool.observed_at)
    assert record(api(users.operator), open_one).json()["facts"]["reason"] == "not-judged"


@pytest.mark.parametrize("other", [{"model": "n"}, {"decider_tokens": 100}])
def test_other_questions_have_no_golden_answers(pool: Pool, users: Cast, api: Api, other: Json) -> None:
    record(api(users.operator), carried_out(pool))
    assert pools_without_golden(pool.cluster, [pool.uid]) == set()
    assert carried_out(make_pool(pool.cluster, **other)).verdict["reason"] == "no-reference"
    assert pools_without_golden(pool.cluster, [pool.uid]) == {pool.uid}
    make_pool(pool.cluster, reference="none")
    assert pools_without_golden(pool.cluster, [pool.uid]) == set(), "nobody compares"


def test_the_newest_that_somebody_vouches_for_is_compared_with(pool: Pool, users: Cast, api: Api) -> None:
    client = api(users.operator)
    record(client, carried_out(pool))
    red = carried_out(pool, wrong=True)  # as after new weights
    assert red.verdict["verdict"] == "red"
    refused = record(client, red)
    assert (refused.status_code, refused.json()["code"]) == (409, "golden-unfit")
    assert refused.json()["facts"]["reason"] == "judged-red" and "revoke" in refused.json()["next_action"]
    first = GoldenOutputs.objects.get()
    post(client, f"golden-outputs/{first.pk}/revoke", version=first.version)
    second = carried_out(pool, wrong=True)
    assert record(client, second).status_code == 201, "a person says that this is right now"
    assert record(client, ProbeSeries.objects.get(pk=first.series_id)).status_code == 201, (
        "and the first is, too"
    )
    GoldenOutputs.objects.filter(pk=first.pk).update(verified_at=first.verified_at)
    assert carried_out(pool, NEW, wrong=True).verdict["verdict"] == "ok"
    newest = GoldenOutputs.objects.get(series=second)
    assert post(client, f"golden-outputs/{newest.pk}/revoke", version=newest.version + 1).status_code == 412
    revoked = post(client, f"golden-outputs/{newest.pk}/revoke", "wrong weights", newest.version)
    assert revoked.status_code == 200 and revoked.json()["revoked_reason"] == "wrong weights"
    assert carried_out(pool, NEW).verdict["verdict"] == "ok", "the older one is in use again"
    again = post(client, f"golden-outputs/{newest.pk}/revoke", version=newest.version + 1)
    assert (again.status_code, again.json()["code"]) == (409, "golden-revoked")


def test_what_is_revoked_while_a_series_runs_proves_nothing(pool: Pool, users: Cast, api: Api) -> None:
    record(api(users.operator), carried_out(pool))
    series = carried_out(pool, NEW)
    assert series.verdict["verdict"] == "ok"
    GoldenOutputs.objects.update(verified_by=[])
    settings = read_settings(pool.settings)
    golden = golden_of_series(series, settings)
    verdict = judging.judge(series, series.plan, series.results, view(), settings, after={}, golden=golden)
    assert (verdict["verdict"], verdict["reason"]) == ("not-evaluable", "no-reference")


def test_an_operation_gives_those_of_its_green_series_of_the_revision(
    pool: Pool, users: Cast, api: Api
) -> None:
    first = carried_out(pool)
    record(api(users.operator), first)
    subject = ("operation", "7")
    carried_out(pool, OLD, subject=subject)
    carried_out(pool, NEW, subject=("operation", "8"))
    carried_out(pool, NEW, subject=subject, wrong=True)
    early = carried_out(pool, NEW, subject=subject)
    late = carried_out(pool, NEW, subject=subject)
    voucher = {"kind": "combination", "id": 3}
    given: Json = {"revision": NEW, "pools": [pool.uid], "voucher": voucher, "actor": ACTOR}
    (golden,) = record_golden_of(subject=subject, **given)
    assert (golden.series_id, golden.verified_by, golden.revision) == (late.pk, [voucher], NEW)
    assert record_golden_of(subject=subject, **given | {"pools": ["elsewhere"]}) == []
    assert usable() == [first.pk, late.pk] and early.pk not in usable()

    record(api(users.operator), late)
    withdraw_voucher(voucher=voucher, reason="it leaks", actor=ACTOR)
    assert late.pk in usable(), "a person vouches for it as well"
    golden.refresh_from_db()
    assert golden.revoked_reason == ""


@given(
    st.lists(
        st.tuples(st.text("abc", min_size=1, max_size=3), st.floats(-50, 0)),
        min_size=1,
        max_size=8,
        unique_by=lambda each: each[0],
    ),
    st.booleans(),
)
def test_an_answer_is_read_back_as_it_was_packed(said: list[tuple[str, float]], cut: bool) -> None:
    tokens, numbers = zip(*said, strict=True)
    answer = Answer(
        tokens, numbers, tuple({token: number} for token, number in said), cut, disaggregated=True
    )
    kept = golden_outputs.packed(answer)
    digest(kept)
    back = golden_outputs._unpacked(kept)
    assert (back.tokens, back.cut, back.disaggregated) == (tokens, cut, True)
    assert back.logprobs == pytest.approx(numbers, abs=1e-6)
    assert golden_outputs.packed(back) == kept
