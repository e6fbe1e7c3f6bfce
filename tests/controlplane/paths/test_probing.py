"""What a series asks: pinned, paced, each group at least once, and never the same question out of a cache."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from controlplane.errors import BadInput, Refused
from controlplane.paths import judging, probing
from controlplane.paths.asks import body_of, result_of
from controlplane.paths.models import Pool, ProbeSeries
from controlplane.paths.pool_settings import PoolSettings, checked_settings
from controlplane.paths.requests import Reply
from controlplane.paths.services import SeenPool, record_pools, set_pool_settings, store_progress
from controlplane.paths.view import PoolView, find_path
from deploy.demo.router.config import example_config
from policy.probes import fixed_prompts
from tests.controlplane.operations.toy import ACTOR, make_cluster
from tests.controlplane.paths.world import engines, objects

Json = dict[str, Any]
NEW = "bbbbbbbb"
COUNTS = {("prefill", NEW): 2, ("decode", NEW): 1}


def view(**options: Any) -> PoolView:
    path = find_path(objects("chat", pods=engines("chat", COUNTS), **options), pool="chat")
    assert path is not None
    return path.pool("chat")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "read_counters", lambda addresses: {})


def planned(kind: str, pool: PoolView, **settings: Any) -> Json:
    series = ProbeSeries(pk=7, kind=kind, revision=NEW)
    return probing.make_plan(series, pool, PoolSettings(**settings), list(fixed_prompts()))


def test_a_series_asks_every_prompt_and_discards_the_first() -> None:
    asks = planned("probe", view())["asks"]
    counted = [ask for ask in asks if not ask["warmup"]]
    assert {ask["prompt"] for ask in counted} == {prompt.id for prompt in fixed_prompts()}
    assert len(asks) - len(counted) == probing.WARM_UP
    assert {ask["revision"] for ask in asks} == {NEW}


def test_path_and_reference_get_one_question_and_no_cache_between_them() -> None:
    prompts = {each.id: each for each in fixed_prompts()}
    asks = planned("parity", view())["asks"]
    first = [body_of(ask, prompts, PoolSettings(model="m"), nonce="n") for ask in asks[:3]]
    assert len({each["prompt"] for each in first}) == 1 and len({each["cache_salt"] for each in first}) == 3
    assert [bool(ask["pod"]) for ask in asks[:3]] == [False, True, True]
    assert len({body_of(ask, prompts, PoolSettings(model="m"), nonce="n")["prompt"] for ask in asks}) == len(
        prompts
    )


def test_a_revision_that_cannot_be_pinned_or_has_no_groups_is_refused() -> None:
    loose = example_config("chat").replace("mode: strict", "mode: prefer")
    with pytest.raises(Refused) as refused:
        planned("probe", view(config=loose))
    assert refused.value.code == "revision-not-pinnable"
    with pytest.raises(Refused) as refused:
        probing.make_plan(
            ProbeSeries(pk=7, revision="cccccccc"), view(), PoolSettings(), list(fixed_prompts())
        )
    assert refused.value.code == "no-groups"


def test_groups_that_the_router_did_not_pick_are_asked_as_its_sidecar_would() -> None:
    plan = planned("probe", view())
    idle = next(name for name, role, *_ in plan["groups"] if role == "prefill")
    decode = next(name for name, role, *_ in plan["groups"] if role == "decode")
    missing = {"missing": [{"id": idle, "role": "prefill", "revision": NEW}]}
    more = probing._unseen_asks(plan, missing, {name: "http://x" for name, *_ in plan["groups"]})
    assert {(ask["prefill"], ask["pod"]) for ask in more} == {(idle, decode)}
    assert len({ask["salt"] for ask in more} | {ask["salt"] for ask in plan["asks"]}) == len(more) + len(
        plan["asks"]
    )
    assert not probing._unseen_asks({**plan, "filled": True}, missing, {idle: "http://x"}), "once"
    assert not probing._unseen_asks(plan, missing, {}), "not where engines are not reached"


def test_failures_that_follow_nothing_have_every_pair_asked() -> None:
    plan = planned("probe", view())
    names = {name: "http://x" for name, *_ in plan["groups"]}
    more = probing._unseen_asks(plan, {"doubts": [{"probes": [1]}]}, names)
    by_prefill = {name: sum(ask["prefill"] == name for ask in more) for name, role, *_ in plan["groups"]}
    assert all(by_prefill[name] >= 6 for name, role, *_ in plan["groups"] if role == "prefill"), by_prefill
    assert {ask["pod"] for ask in more} == {name for name, role, *_ in plan["groups"] if role == "decode"}
    assert probing._unseen_asks(plan, {"doubts": []}, names) == []
    assert probing._unseen_asks(planned("parity", view()), {"verdict": "ok"}, names) == [], (
        "parity covers nothing"
    )
    many = {**plan, "groups": [[f"g{n}", ("prefill", "decode")[n % 2], NEW] for n in range(300)]}
    wide = probing._unseen_asks(many, {"doubts": [{}]}, {f"g{n}": "http://x" for n in range(300)})
    assert len(wide) == 300 * probing.PAIR_REPEATS, "a large set is not asked for ever"


def test_tokens_from_a_cache_of_a_fresh_prompt_came_through_the_transfer() -> None:
    kept: Json = dict.fromkeys(("dropped_reason", "stamped", "prefill", "decode", "detail"), "")
    kept |= {"status": 200, "prompt_tokens": 60, "output_tokens": 16, "cached_tokens": 0}
    ask = {"number": 1, "revision": NEW, "warmup": False}
    assert result_of(ask, kept).external_tokens == 0
    assert result_of(ask, {**kept, "cached_tokens": None}).external_tokens is None, "not said is not zero"


# --- rows


@pytest.mark.django_db
def test_an_older_picture_never_overwrites_and_a_pool_that_is_gone_is_marked() -> None:
    cluster = make_cluster(watcher_fence=5)
    seen = [SeenPool("u1", "serving", "chat", {"sets": ["chat"]}), SeenPool("u2", "serving", "code", {})]
    assert record_pools(cluster_id=cluster.pk, fence=5, seen=seen) == 2
    assert record_pools(cluster_id=cluster.pk, fence=5, seen=seen) == 0, "nothing changed, nothing written"
    assert record_pools(cluster_id=cluster.pk, fence=4, seen=[]) is None
    assert record_pools(cluster_id=cluster.pk, fence=5, seen=seen[:1]) == 1
    assert list(Pool.objects.present().values_list("name", flat=True)) == ["chat"]
    assert record_pools(cluster_id=cluster.pk, fence=5, seen=seen) == 1, "it is back"


@pytest.mark.django_db
def test_two_workers_do_not_store_one_piece_twice() -> None:
    cluster = make_cluster(watcher_fence=5)
    record_pools(cluster_id=cluster.pk, fence=5, seen=[SeenPool("u1", "serving", "chat", {})])
    series = ProbeSeries.objects.create(
        pool=Pool.objects.get(), kind="probe", subject_kind="t", key="k", created_at=cluster.created_at
    )
    assert store_progress(series_id=series.pk, plan={}, results=[{"number": 0}], done_before=0)
    assert not store_progress(series_id=series.pk, plan={}, results=[{"number": 0}], done_before=0)
    series.refresh_from_db()
    assert len(series.results) == 1


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"probe_url": "ftp://x"}, "probe_url"),
        ({"probe_url": "http://user:secret@gateway"}, "probe_url"),
        ({"public_url": "http://169.254.169.254/latest"}, "public_url"),
        ({"probe_url": "http://2852039166/"}, "probe_url"),
        ({"probe_url": "http://0xa9fea9fe"}, "probe_url"),
        ({"probe_url": "http://[::ffff:169.254.169.254]"}, "probe_url"),
        ({"probe_url": "http://metadata.google.internal"}, "probe_url"),
        ({"credential": "../etc/passwd"}, "credential"),
        ({"credential": ".hidden"}, "credential"),
        ({"rate": 0}, "rate"),
        ({"rate": True}, "rate"),
        ({"margin": float("nan")}, "margin"),
        ({"reference": "maybe"}, "reference"),
        ({"speed": 3}, "speed"),
    ],
)
def test_what_is_no_setting_is_refused_by_field(sent: Json, field: str) -> None:
    with pytest.raises(BadInput) as refused:
        checked_settings(sent, before={})
    assert (refused.value.code, refused.value.field) == ("pool-setting-invalid", field)
    assert "secret" not in str(refused.value)


@pytest.mark.django_db
def test_settings_are_edited_under_a_version_and_audited(api: Callable[..., Any], users: Any) -> None:
    from controlplane.audit.models import AuditEvent

    cluster = make_cluster(watcher_fence=5)
    record_pools(cluster_id=cluster.pk, fence=5, seen=[SeenPool("u1", "serving", "chat", {})])
    pool = Pool.objects.get()
    body = {"settings": {"probe_url": "http://gateway:8081", "model": "m"}}
    client = api(users.operator)
    assert client.patch(f"/api/v1/pools/{pool.pk}", body).status_code == 428
    done = client.patch(f"/api/v1/pools/{pool.pk}", body, headers={"If-Match": '"1"'})
    assert done.status_code == 200 and done["ETag"] == '"2"'
    assert client.patch(f"/api/v1/pools/{pool.pk}", body, headers={"If-Match": '"1"'}).status_code == 412
    assert (
        api(users.viewer).patch(f"/api/v1/pools/{pool.pk}", body, headers={"If-Match": '"2"'}).status_code
        == 403
    )
    assert AuditEvent.objects.filter(action="pool.set_settings", outcome="done").count() == 1
    set_pool_settings(pool_id=pool.pk, version=2, changes={"rate": 2}, actor=ACTOR)
    pool.refresh_from_db()
    assert pool.settings == {"probe_url": "http://gateway:8081", "model": "m", "rate": 2}


# --- sending


class Slow:
    """A line on which every answer takes its time."""

    took = 0.2
    asked: list[str] = []

    def __init__(self, base: str, **_: Any) -> None:
        self.base = base

    def complete(self, body: Json, **_: Any) -> Any:
        Slow.asked.append(body["cache_salt"])
        time.sleep(Slow.took)
        return Reply(200)

    def close(self) -> None:
        """Nothing to close."""


def test_a_slow_path_takes_more_pieces_and_never_a_workers_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "Line", Slow)
    monkeypatch.setattr(probing, "PIECE_S", 0.5)
    monkeypatch.setattr(Slow, "asked", [])
    pool = view()
    plan = planned("probe", pool)
    prompts = {each.id: each for each in fixed_prompts()}
    begun = time.monotonic()
    sent = probing._send(plan["asks"], prompts, PoolSettings(rate=1000, model="m"), pool)
    assert time.monotonic() - begun < 2.0
    assert 8 <= len(sent) < len(plan["asks"]), "what was sent is kept, the rest is for the next piece"
    assert [each["number"] for each in sent] == list(range(len(sent)))
    again = probing._send(plan["asks"][:4], prompts, PoolSettings(rate=1000, model="m"), pool)
    assert len(again) == 4 and len(set(Slow.asked)) == len(Slow.asked), "sent again, it is under another salt"


def test_pods_that_were_replaced_meanwhile_prove_nothing() -> None:
    pool = view()
    plan = planned("probe", pool)
    plan["groups"][0][3] = "another-uid"
    series = ProbeSeries(pk=7, kind="probe", revision=NEW)
    verdict = judging.judge(series, plan, [], pool, PoolSettings(), after={})
    assert (verdict["verdict"], verdict["reason"]) == ("not-evaluable", "groups-changed")


def test_an_engine_that_restarted_in_place_meanwhile_proves_nothing() -> None:
    pods = engines("chat", COUNTS)
    plan = planned("probe", view())
    path = find_path(objects("chat", pods=pods), pool="chat")
    pods[1]["status"]["containerStatuses"] = [{"name": "engine", "restartCount": 1}, {"name": "sidecar"}]
    later = find_path(objects("chat", pods=pods), pool="chat")
    assert path is not None and later is not None
    series = ProbeSeries(pk=7, kind="parity", revision=NEW)

    def reason(now: PoolView) -> str:
        empty = {**plan, "asks": []}
        return str(judging.judge(series, empty, [], now, PoolSettings(), after={})["reason"])

    assert reason(path.pool("chat")) != "groups-changed"
    assert reason(later.pool("chat")) == "groups-changed"
    plan["groups"] = [group[:4] for group in plan["groups"]]
    assert reason(later.pool("chat")) != "groups-changed", "older plans did not write restarts down"


@pytest.mark.django_db
def test_a_worker_that_was_overtaken_looks_again_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = make_cluster(watcher_fence=5)
    settings = {"probe_url": "http://gateway", "model": "m", "rate": 50}
    record_pools(cluster_id=cluster.pk, fence=5, seen=[SeenPool("u1", "serving", "chat", {})])
    Pool.objects.update(settings=settings)
    series = ProbeSeries.objects.create(
        pool=Pool.objects.get(),
        kind="probe",
        subject_kind="t",
        key="k",
        revision=NEW,
        created_at=cluster.created_at,
    )
    monkeypatch.setattr(probing, "read_pool", lambda kube, found: view())

    def other_worker(*_: Any) -> list[Json]:
        ProbeSeries.objects.update(results=[{"number": 0}], plan={"asks": [], "settings": settings})
        return [{"number": 0}]

    monkeypatch.setattr(probing, "_send", other_worker)
    done = probing.run_series(kube=object(), now=cluster.created_at, series=series.pk)  # type: ignore[arg-type]
    assert done is None, "or the series would stay running with nobody to carry it on"
