"""From named numbers to what a pool shows: shares beside the plan, the KV link, and absences that are no zeros."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from controlplane.audit.clock import database_now
from controlplane.fleet.models import Cluster
from controlplane.metrics.asked import Incarnation
from controlplane.metrics.client import Prometheus
from controlplane.metrics.errors import MetricsError
from controlplane.metrics.measured import FEW_SCRAPES, Measured, State
from controlplane.metrics.source import Source
from controlplane.paths import measuring, rounds
from controlplane.paths.links import links_of
from controlplane.paths.measuring import Standing, measure_path
from controlplane.paths.models import Pool, ProbeSeries
from controlplane.paths.objects import PathObjects
from controlplane.paths.pool_settings import PoolSettings
from controlplane.paths.rounds import measure_round, oldest_first, read_known, standing_of
from controlplane.paths.services import record_measured, record_pools, seen_pools
from controlplane.paths.view import PathView, derive_paths
from deploy.demo.gateway.manifests import http_route
from tests.controlplane.metrics.told import Told
from tests.controlplane.operations.toy import make_cluster
from tests.controlplane.paths.world import NAMESPACE, engines, objects

Json = dict[str, Any]
OLD, NEW = "aaaaaaaa", "bbbbbbbb"
AT_HOLD = {("prefill", OLD): 4, ("decode", OLD): 2, ("prefill", NEW): 1, ("decode", NEW): 1}
AT = 1_800_000_000.0
PICKS = "scheduler_attempts"


def number(
    name: str, value: float | None, *, state: State = State.VALUE, stat: str = "value", **more: Any
) -> Measured:
    plain: Json = {
        "unit": "count",
        "role": "",
        "revision": "",
        "at": AT,
        "window_s": 300,
        "query": f"q({name})",
    }
    return Measured(name=name, stat=stat, state=state, value=value, **(plain | more))


def pick(revision: str, role: str, index: int, count: float) -> Measured:
    labels = {"endpoint": f"chat-{revision}-{role}-{index}-0"}
    return number(PICKS, count, labels=labels)


def finished(revision: str, index: int, count: float | None, state: State = State.VALUE) -> Measured:
    labels = {"pod": f"chat-{revision}-prefill-{index}-0"} if count is not None else {}
    return number("finished_requests", count, state=state, role="prefill", revision=revision, labels=labels)


def decided(kind: str, count: float) -> Measured:
    return number("disagg_decisions", count, labels={"decision_type": kind})


def the_path(**options: Any) -> PathView:
    return derive_paths(objects("chat", pods=engines("chat", AT_HOLD), **options))[0]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Json, Told]]:
    """``measured(number, ...)``: the document of the path at a hold, and what was asked."""

    def measure(
        *numbers: Measured, path: PathView | None = None, steady_for: float = 300.0
    ) -> tuple[Json, Told]:
        told = Told(*numbers, at=AT)
        monkeypatch.setattr(measuring, "measure_all", told.measure_all)
        standing = Standing({("chat", OLD): 90_000.0, ("chat", NEW): 400.0}, steady_for)
        client: Any = told
        return measure_path(client, Source(), path or the_path(), standing)[0], told

    return measure


def test_shares_stand_beside_the_plan_and_agree(measured: Callable[..., Any]) -> None:
    shown, told = measured(
        pick(OLD, "decode", 0, 121.7), pick(OLD, "decode", 1, 120), pick(NEW, "decode", 0, 58),
        decided("prefill-decode", 240), decided("decode-only", 60),
        *(finished(OLD, index, 48) for index in range(4)), finished(NEW, 0, 48),
    )  # fmt: skip
    lanes = {lane["revision"]: (lane["count"], lane["prefilled"]) for lane in shown["shares"]["lanes"]}
    assert (shown["state"], lanes) == ("value", {OLD: (242, 192), NEW: (58, 48)})
    assert shown["shares"]["skipped"]["share"] == pytest.approx(0.2)
    assert sum(edge["share"] for edge in shown["shares"]["edges"]) == pytest.approx(1.0)
    assert shown["agreement"]["verdict"] == "agree", shown["agreement"]
    assert "aggregates" in shown["pairs"]["sentence"] and shown["queries"]["scheduler_attempts"]
    (asked,) = told.asked
    assert (asked["set"], asked["router"], asked["window_s"]) == ("chat", "chat-epp", 300)
    assert asked["revisions"] == [
        Incarnation(OLD, AT - 90_000, counted_from=AT - 300), Incarnation(NEW, AT - 400, counted_from=AT - 300)
    ]  # fmt: skip


def test_requests_that_go_elsewhere_are_told(measured: Callable[..., Any]) -> None:
    shown, _ = measured(pick(OLD, "decode", 0, 150), pick(NEW, "decode", 0, 150))
    assert shown["agreement"]["verdict"] == "differ"
    assert shown["shares"]["skipped"] is None, "nobody counted decisions, which is not none"
    assert {edge["kind"] for edge in shown["shares"]["edges"]} == {"unsplit"}


def test_prefills_of_one_revision_alone_split_nothing(measured: Callable[..., Any]) -> None:
    away = finished(NEW, 0, None, State.NO_DATA)
    shown, _ = measured(pick(OLD, "decode", 0, 100), pick(NEW, "decode", 0, 25), finished(OLD, 0, 100), away)
    assert {lane["prefilled"] for lane in shown["shares"]["lanes"]} == {None}


def test_a_pod_that_is_gone_is_known_by_its_series(measured: Callable[..., Any]) -> None:
    gone = number(PICKS, 40, labels={"endpoint": "chat-x-9"}, revision=OLD, role="decode")
    stranger = number(PICKS, 7, labels={"endpoint": "who-0"})
    shown, _ = measured(pick(OLD, "decode", 0, 100), gone, stranger)
    assert {lane["revision"]: lane["count"] for lane in shown["shares"]["lanes"]} == {OLD: 140, NEW: 0}
    assert shown["shares"]["unmatched"] == (("who-0", 7),)


@pytest.mark.parametrize(
    ("numbers", "state"),
    [
        ([number(PICKS, 0.0, revision=OLD), number(PICKS, 0.0, revision=NEW)], "no-traffic"),
        ([number(PICKS, None, state=State.NO_DATA, reason="No pod of this router is scraped.")], "no-data"),
        ([number(PICKS, None, state=State.NOT_EXPOSED, reason="It does not tell.")], "not-exposed"),
    ],
)
def test_an_absence_says_which_and_has_no_shares(
    measured: Callable[..., Any], numbers: list[Measured], state: str
) -> None:
    shown, _ = measured(*numbers)
    assert shown["state"] == state and shown["reason"] and "shares" not in shown


def test_counts_of_few_scrapes_are_no_shares(measured: Callable[..., Any]) -> None:
    shown, _ = measured(
        replace(pick(OLD, "decode", 0, 100), notes=(FEW_SCRAPES,)), pick(NEW, "decode", 0, 90)
    )
    assert shown["state"] == "no-data" and "scraped fewer than 4 times" in shown["reason"]


def test_one_of_two_pools_without_picks_takes_the_shares_away(measured: Callable[..., Any]) -> None:
    route = http_route(
        "both", NAMESPACE, gateway="front", gateway_namespace=NAMESPACE, pools={"chat": 9, "code": 1}
    )
    seen = objects("chat", "code", pods=engines("chat", AT_HOLD), routes=[route])
    services = tuple(each for each in seen.services if not each["metadata"]["name"].startswith("code"))
    (path,) = derive_paths(replace(seen, services=services))
    shown, _ = measured(pick(OLD, "decode", 0, 100), path=path)
    assert shown["state"] == "no-data" and "code" in shown["reason"]


def test_the_window_is_no_longer_than_the_plan_has_stood(measured: Callable[..., Any]) -> None:
    for steady, window in ((9e9, measuring.WINDOW_S), (47.9, 47), (0.0, 1)):
        _, told = measured(pick(OLD, "decode", 0, 100), steady_for=steady)
        assert told.asked[0]["window_s"] == window


# --- the KV link


def link(*numbers: Measured, args: list[str] | None = None, **settings: Any) -> Json:
    pods = engines("chat", {("decode", NEW): 1, ("prefill", NEW): 1})
    for pod in pods:
        command = ["vllm", "serve", *(args or ["meta-llama/Llama-3.1-70B-Instruct"])]
        pod["spec"]["containers"][0] |= {"image": "vllm/vllm-openai:v0.30.0", "command": command}
    path = derive_paths(objects("chat", pods=pods))[0]
    whole = {pod["metadata"]["uid"]: pod for pod in pods}
    found = [("chat", replace(one, revision=NEW)) for one in numbers]
    (only,) = links_of(path.pool("chat"), found, pods=whole, settings=PoolSettings(**settings))
    return only


def moved(per_token: float, tokens: float, transfers: float, mean: float) -> list[Measured]:
    return [
        number("transfer_bytes_per_token", per_token, count=tokens, enough=True),
        number("transfer_time", mean, stat="mean", role="decode", count=transfers, enough=True),
        number("transfer_time", transfers, stat="count", role="decode", count=transfers, enough=True),
        number("transfer_time", None, stat="mean", role="prefill", state=State.NO_TRAFFIC, count=0.0),
        number("transfer_time", 0.0, stat="count", role="prefill", count=0.0),
    ]


def test_measured_bytes_and_times_stand_beside_what_is_expected() -> None:
    seen = link(*moved(327_680, 400_000, 100, 0.035), link="ib-ndr")
    assert (seen["bytes"]["state"], seen["bytes"]["expected"]) == ("as-expected", 327_680)
    assert seen["bytes_per_transfer"] == pytest.approx(327_680 * 4000)
    assert (seen["time"]["state"], seen["time"]["samples"]) == ("slow", 100)
    assert seen["time"]["floor"] < seen["time"]["low"] < seen["time"]["high"] < 0.035


def test_the_time_of_a_transfer_stands_against_the_budget_of_the_first_token() -> None:
    seen = link(*moved(327_680, 400_000, 100, 0.035), link="ib-ndr", ttft_budget=0.35)["time"]
    assert seen["budget_shares"]["measured"] == pytest.approx(0.1)
    assert 0 < seen["budget_shares"]["low"] < seen["budget_shares"]["high"] < 0.1
    without_link = link(*moved(327_680, 400_000, 100, 0.035), ttft_budget=0.35)["time"]
    assert without_link["budget_shares"] == {"measured": pytest.approx(0.1), "low": None, "high": None}
    assert link(*moved(327_680, 400_000, 100, 0.035))["time"]["budget_shares"] is None


def test_what_is_not_known_of_the_link_is_named() -> None:
    seen = link(*moved(1000, 400_000, 100, 0.03), args=["acme/own"])
    assert (seen["bytes"]["state"], seen["bytes"]["missing"]) == ("unknown", ("the geometry of acme/own",))
    assert seen["time"]["state"] == "unknown" and "link of the pool" in seen["time"]["sentence"]
    nothing = link()
    assert (nothing["bytes"]["state"], nothing["time"]["state"]) == ("not-measured", "not-measured")
    idle = link(number("transfer_bytes_per_token", None, state=State.NO_TRAFFIC, reason="It is scraped."))
    assert (idle["bytes"]["display"], idle["bytes"]["reason"]) == ("no-traffic", "It is scraped.")


# --- rounds


def recorded(seen: PathObjects) -> tuple[Cluster, list[PathView]]:
    cluster = make_cluster(watcher_fence=3)
    cluster.metrics_url = "http://prometheus.example"
    cluster.save(update_fields=["metrics_url"])
    paths = derive_paths(seen)
    record_pools(cluster_id=cluster.pk, fence=3, seen=seen_pools(paths))
    return cluster, paths


def source_of(monkeypatch: pytest.MonkeyPatch, told: Told) -> None:
    monkeypatch.setattr(rounds, "connect_metrics", lambda cluster, timeout_s: (told, Source()))
    monkeypatch.setattr(measuring, "measure_all", told.measure_all)


@pytest.mark.django_db
def test_a_round_stores_for_every_pool_and_the_api_shows_it_with_its_age(
    monkeypatch: pytest.MonkeyPatch, api: Callable[..., Any], users: Any
) -> None:
    seen = objects("chat", pods=engines("chat", AT_HOLD))
    cluster, paths = recorded(seen)
    source_of(monkeypatch, Told(pick(OLD, "decode", 0, 100), at=AT))
    assert measure_round(cluster=cluster, fence=3, objects=seen, paths=paths, budget_s=5) == 1
    row = Pool.objects.get()
    shown = api(users.viewer).get(f"/api/v1/pools/{row.pk}").json()
    assert shown["measured"]["state"] == "value" and 0 <= shown["measured_age"] < 60
    assert [each["revision"] for each in shown["measured"]["links"]] == [OLD, NEW]
    listed = api(users.viewer).get("/api/v1/pools").json()["results"]
    assert "measured" not in listed[0]
    assert measure_round(cluster=cluster, fence=2, objects=seen, paths=paths, budget_s=5) is None
    cluster.metrics_url = ""
    assert measure_round(cluster=cluster, fence=3, objects=seen, paths=paths, budget_s=5) == 1
    assert Pool.objects.get().measured == {} and Pool.objects.get().measured_at is None


@pytest.mark.django_db
def test_a_source_that_is_away_is_no_data_since_then(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = objects("chat", "code", pods=engines("chat", AT_HOLD))
    cluster, paths = recorded(seen)
    told = Told(at=AT)

    def away() -> float:
        raise MetricsError("metrics-unreachable", "The metric source cannot be reached.")

    monkeypatch.setattr(told, "now", away)
    source_of(monkeypatch, told)
    assert measure_round(cluster=cluster, fence=3, objects=seen, paths=paths, budget_s=5) == 2
    row = Pool.objects.get(name="chat")
    assert (row.measured["state"], row.measured["problem"]) == ("no-data", "metrics-unreachable")
    since = row.measured_at
    assert measure_round(cluster=cluster, fence=3, objects=seen, paths=paths, budget_s=5) == 0
    row.refresh_from_db()
    assert row.measured_at == since


@pytest.mark.django_db
def test_a_round_without_time_takes_the_pool_that_was_measured_longest_ago(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = objects("one", "two", "three", pods=[])
    cluster, paths = recorded(seen)
    source_of(monkeypatch, Told(at=AT))
    names = []
    for _ in range(4):
        order = oldest_first(paths, read_known(cluster, paths))
        names.append(order[0].pools[0].name)
        assert measure_round(cluster=cluster, fence=3, objects=seen, paths=paths, budget_s=0) == 1
    assert sorted(names[:3]) == ["one", "three", "two"] and names[3] == names[0]


@pytest.mark.django_db
def test_shares_count_from_the_last_change_and_after_the_last_pinned_probe() -> None:
    seen = objects("chat", pods=engines("chat", AT_HOLD))
    cluster, paths = recorded(seen)
    hour = timedelta(hours=1)
    Pool.objects.update(observed_at=database_now() - hour)
    assert standing_of(paths[0], read_known(cluster, paths)).steady_for == pytest.approx(3600, abs=30)
    pool, now = Pool.objects.get(), database_now()
    kept: Json = {
        "pool": pool,
        "kind": "probe",
        "subject_kind": "t",
        "subject_id": "1",
        "created_at": now - hour,
    }
    ended = now - timedelta(minutes=5)
    ProbeSeries.objects.create(**kept, key="a", state="judged", finished_at=ended, revision=NEW)
    ProbeSeries.objects.create(**kept, key="b", state="judged", finished_at=now, revision="")
    steady = standing_of(paths[0], read_known(cluster, paths)).steady_for
    assert steady == pytest.approx(300 - rounds.SCRAPED_AFTER_S, abs=30), (
        "unpinned probes go where clients go"
    )
    ProbeSeries.objects.create(**kept, key="c", state="running", revision=NEW)
    assert standing_of(paths[0], read_known(cluster, paths)).steady_for == 0.0


@pytest.mark.django_db
def test_a_path_that_has_not_changed_is_not_written_again() -> None:
    seen = objects("chat", pods=engines("chat", AT_HOLD))
    cluster, paths = recorded(seen)
    before = Pool.objects.get().observed_at
    assert record_pools(cluster_id=cluster.pk, fence=3, seen=seen_pools(derive_paths(seen))) == 0
    assert Pool.objects.get().observed_at == before, (
        "or shares could never be compared with a plan that stands"
    )
    moved = objects("chat", pods=engines("chat", {**AT_HOLD, ("decode", OLD): 1}))
    assert record_pools(cluster_id=cluster.pk, fence=3, seen=seen_pools(derive_paths(moved))) == 1
    assert len(paths) == 1


@pytest.mark.django_db
def test_an_older_watcher_stores_nothing() -> None:
    cluster, _ = recorded(objects("chat", pods=[]))
    uid = Pool.objects.get().uid
    assert record_measured(cluster_id=cluster.pk, fence=2, measured={uid: {"state": "value"}}) is None
    assert (
        record_measured(cluster_id=cluster.pk, fence=3, measured={uid: {"state": "value"}, "gone": {}}) == 1
    )


def test_the_fake_client_is_taken_for_one() -> None:
    assert {"now", "close"} <= {name for name in dir(Prometheus)}
