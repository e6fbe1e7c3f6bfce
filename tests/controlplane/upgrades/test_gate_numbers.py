"""Which number of which role, revision and moment a gate is judged by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from controlplane.fleet.models import Cluster
from controlplane.metrics.errors import MetricsError
from controlplane.metrics.measured import Measured, State
from controlplane.metrics.source import Source
from controlplane.paths.view import derive_paths
from controlplane.upgrades.steps import engine_versions, gate_numbers
from controlplane.upgrades.steps.gate_evidence import count_restarts, numbers_of, of_series, with_margin
from controlplane.upgrades.steps.gate_numbers import ENGINES, ROUTERS, Life, Numbers, Subject, ask_source
from policy.gates import Measurement, default_gates, judge_gate
from tests.controlplane.metrics.told import Told
from tests.controlplane.paths.world import engines, objects
from tests.controlplane.upgrades.gating import NEW, NOW, OLD, PROVED, pods, series
from tests.controlplane.upgrades.given import role

Json = dict[str, Any]
AT = 1_800_000_000.0
GATES = {gate.id: gate for gate in default_gates("production")}
BEGAN = NOW - timedelta(seconds=300)


def number(name: str, value: float | None, *, revision: str = NEW, role: str = "", **more: Any) -> Measured:
    plain: Json = {
        "state": State.VALUE,
        "stat": "value",
        "unit": "ratio",
        "at": AT,
        "window_s": 300,
        "age_s": 3.0,
    }
    plain |= {"count": 5000.0, "query": f"q({name},{revision},{role})"}
    return Measured(name=name, value=value, revision=revision, role=role, **(plain | more))


def subject(**fields: Any) -> Subject:
    usual: Json = {
        "namespace": "llm",
        "name": "chat",
        "sides": {"prefill": "prefill", "decode": "decode"},
        "new": Life(NEW, BEGAN, {"decode": "0.30.0", "prefill": "0.30.0"}),
        "old": Life(OLD, NOW - timedelta(days=9), {"decode": "0.30.0"}),
        "old_whole": True,
        "pools": (),
        "now": NOW,
    }
    return Subject(**(usual | fields))


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Numbers, Told]]:
    """``ask(gate ids, numbers, **subject)``"""

    def asked(ids: list[str], *numbers: Measured, **fields: Any) -> tuple[Numbers, Told]:
        told = Told(*numbers, at=AT)
        monkeypatch.setattr(gate_numbers, "connect_metrics", lambda cluster, **_: (told, Source()))
        monkeypatch.setattr(gate_numbers, "measure_all", told.measure_all)
        return ask_source(Cluster(name="c"), subject(**fields), [GATES[each] for each in ids]), told

    return asked


def test_every_gate_of_every_environment_has_a_source() -> None:
    others = {"probe_success", "parity_bound", "restarts"}
    assert {gate.metric for gate in GATES.values()} == {*ENGINES, *ROUTERS, *others}


def test_the_side_that_reads_tells_transfers_and_the_idle_one_says_nothing(ask: Callable[..., Any]) -> None:
    idle = number("failed_transfers_ratio", None, role="prefill", state=State.NO_TRAFFIC, count=0.0)
    found, _ = ask(["failed-transfers"], idle, number("failed_transfers_ratio", 0.2, role="decode"))
    (only,) = found.measurements["failed-transfers"]
    assert (only.value, only.version, only.revision) == (0.2, "0.30.0", f"{NEW} (decode)")
    found, _ = ask(["failed-transfers"], idle)
    assert [each.state for each in found.measurements["failed-transfers"]] == ["no-traffic"]


def test_a_role_that_nobody_scrapes_is_not_passed_over(ask: Callable[..., Any]) -> None:
    away = number("error_ratio", None, role="decode", state=State.NO_DATA)
    found, told = ask(["error-ratio"], number("error_ratio", 0.0, role="prefill"), away)
    assert {each.state for each in found.measurements["error-ratio"]} == {"value", "no-data"}
    assert told.asked[0]["roles"] == ("prefill", "decode")


def test_gates_of_one_side_are_not_judged_by_the_other(ask: Callable[..., Any]) -> None:
    both = [number("expired_leases_ratio", 0.5, role=each) for each in ("prefill", "decode")]
    found, _ = ask(["expired-leases"], *both)
    assert [each.revision for each in found.measurements["expired-leases"]] == [f"{NEW} (prefill)"]


def test_a_gate_that_compares_asks_for_the_old_revision_at_the_same_time(ask: Callable[..., Any]) -> None:
    numbers = [
        number("ttft", 0.3, role="prefill", stat="p95"),
        number("ttft", 0.2, role="prefill", stat="p95", revision=OLD),
        number("ttft", 0.9, role="prefill", stat="count"),
    ]
    found, told = ask(["ttft", "error-ratio"], *numbers)
    (only,) = found.measurements["ttft"]
    assert only.value == 0.3 and only.baseline is not None and only.baseline.value == 0.2
    assert len(found.queries["ttft"]) == 2
    assert [(each["names"], each["now"]) for each in told.asked] == [
        (["ttft", "error_ratio"], AT),
        (["ttft"], AT),
    ]
    assert (only.version, only.baseline.version) == ("0.30.0", None), "each with the version of its own role"


def test_an_old_revision_that_gets_nothing_now_is_compared_as_it_was_before(ask: Callable[..., Any]) -> None:
    _, told = ask(["ttft"], old_whole=False, since=NOW - timedelta(seconds=60))
    new, old = told.asked
    assert (new["now"], old["now"]) == (AT, AT - 300)
    assert new["revisions"][0].counted_from == AT - 60 and old["revisions"][0].counted_from == 0.0
    assert old["revisions"][0].started_at == pytest.approx(AT - 9 * 86_400)


def test_nothing_from_before_the_windows_began_counts(ask: Callable[..., Any]) -> None:
    _, told = ask(["ttft"], since=NOW - timedelta(seconds=60))
    assert [each["revisions"][0].counted_from for each in told.asked] == [AT - 60, AT - 60]


def test_a_mean_in_place_of_the_quantile_is_no_value(ask: Callable[..., Any]) -> None:
    found, _ = ask(["ttft"], number("ttft", 0.3, role="decode", stat="mean", instead_of="p95"))
    assert [each.state for each in found.measurements["ttft"]] == ["no-data"]


def test_windows_of_their_own_are_asked_for_apart(
    ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(GATES, "queue", replace(GATES["queue"], window_s=60))
    _, told = ask(["error-ratio", "queue"])
    assert [(each["names"], each["window_s"]) for each in told.asked] == [
        (["queue_per_group"], 60), (["error_ratio"], 600)
    ]  # fmt: skip


def test_nobody_there_is_no_data(ask: Callable[..., Any]) -> None:
    found, _ = ask(["kv-usage"])
    (only,) = found.measurements["kv-usage"]
    assert only.state == "no-data" and "no pod" in only.note


def test_a_source_that_does_not_answer_makes_nothing_green(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(cluster: Cluster, **_: Any) -> Any:
        raise MetricsError("metrics-too-slow", "The metric source did not answer.")

    monkeypatch.setattr(gate_numbers, "connect_metrics", away)
    found = ask_source(Cluster(name="c"), subject(), list(GATES.values()))
    assert set(found.measurements) == {
        gate.id for gate in GATES.values() if gate.metric in {*ENGINES, *ROUTERS}
    }
    verdicts = {judge_gate(GATES[name], ms[0]).verdict for name, ms in found.measurements.items()}
    assert verdicts == {"not-evaluable"}
    assert "did not answer" in judge_gate(GATES["queue"], found.measurements["queue"][0]).sentence


def test_the_router_is_compared_with_itself_before_the_new_revision_came(ask: Callable[..., Any]) -> None:
    pool = objects("chat", pods=engines("chat", {("decode", NEW): 1}))
    view = derive_paths(pool)[0].pools[0]
    found, told = ask(["decode-only-share"], number("decode_only_share", 0.1, revision=""), pools=(view,))
    now, before = told.asked
    assert (now["now"], now["window_s"], before["now"], before["window_s"]) == (AT, 300, AT - 300, 600)
    (only,) = found.measurements["decode-only-share"]
    assert only.baseline is not None and (only.revision, only.baseline.value) == ("pool chat", 0.1)


# --- restarts


def counted(
    found: list[Json], *, since: datetime | None = None, stood: datetime | None = None
) -> Measurement:
    return count_restarts(GATES["restarts"], found, label=NEW, now=NOW, since=since, stood_from=stood)


def test_a_restart_in_the_window_counts_and_an_older_one_does_not() -> None:
    assert counted(pods()).value == 0
    assert counted(pods(restarts=3)).value == 1, "only the last one has a time"
    assert counted(pods(restarts=3), since=NOW - timedelta(seconds=30)).value == 0
    young = pods(restarts=3)
    young[0]["metadata"]["creationTimestamp"] = "2026-11-30T11:58:00Z"
    assert counted(young).value == 3
    untimed = pods(restarts=1)
    del untimed[0]["status"]["containerStatuses"][0]["lastState"]
    assert counted(untimed).value == 1
    assert counted([]).state == "no-data"


def test_a_pod_that_was_made_anew_after_the_row_stood_counts() -> None:
    again = pods()
    again[1]["metadata"]["creationTimestamp"] = "2026-11-30T11:57:00Z"
    stood = datetime(2026, 11, 30, 11, 56, tzinfo=UTC)
    assert counted(again, stood=stood).value == 1
    assert counted(again).value == 0, "pods of a row that does not stand yet are new by plan"
    assert counted(again, stood=stood, since=NOW - timedelta(seconds=60)).value == 0


# --- series


def test_series_of_the_new_revision_alone_are_taken_with_their_age() -> None:
    old = {**series("probe"), "revision": OLD}
    kept = {**PROVED, "series": [old, *PROVED["series"]]}
    (only,) = of_series(GATES["probe-success"], kept, label=NEW, now=NOW)
    assert (only.value, only.samples, only.age_s) == (1.0, 24, 60.0)
    assert of_series(GATES["parity"], None, label=NEW, now=NOW) == []


@pytest.mark.parametrize(
    ("gate", "kind", "verdict", "numbers", "wanted"),
    [
        ("probe-success", "probe", "green", {}, "green"),
        ("probe-success", "probe", "red", {}, "red"),
        ("probe-success", "probe", "not-evaluable", {}, "not-evaluable"),
        ("probe-success", "probe", "failed", {"value": None, "samples": 0}, "not-evaluable"),
        ("parity", "parity", "ok", {"value": -0.01}, "green"),
        ("parity", "parity", "garbage", {"value": 0.0}, "red"),
        ("parity", "parity", "not-evaluable", {"value": None}, "not-evaluable"),
    ],
)  # fmt: skip
def test_a_series_is_green_only_where_it_was_seen(
    gate: str, kind: str, verdict: str, numbers: Json, wanted: str
) -> None:
    kept = {**PROVED, "series": [series(kind, verdict, **numbers)]}
    (only,) = of_series(GATES[gate], kept, label=NEW, now=NOW)
    assert judge_gate(GATES[gate], only).verdict == wanted


def test_the_margin_is_the_pools_unless_the_plan_gives_another() -> None:
    kept = {**PROVED, "series": [series("parity", value=0.08, margin=0.1)]}
    usual = GATES["parity"]
    assert judge_gate(usual, of_series(usual, kept, label=NEW, now=NOW)[0]).verdict == "red"
    assert with_margin(usual, kept).threshold == 0.1
    tight = replace(usual, threshold=0.01)
    assert with_margin(tight, kept) == tight and with_margin(usual, None) == usual
    assert with_margin(GATES["ttft"], kept) == GATES["ttft"]


def test_numbers_of_verdicts() -> None:
    assert numbers_of("probe", {"judged": 25, "succeeded": 24}) == {"value": 0.96, "samples": 25}
    assert numbers_of("probe", {}) == {"value": None, "samples": 0}
    said = {"bound": 0.01, "prompts": 24, "margin": 0.05}
    assert numbers_of("parity", said) == {"value": 0.01, "samples": 24, "margin": 0.05}


# --- versions


def test_engines_are_asked_once_and_else_their_own_images_tag_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[set[str]] = []

    def ask(context: Any, pools: Any, labels: set[str]) -> Any:
        asked.append(labels)
        return {(NEW, "decode"): ("0.33.1", engine_versions.ASKED)}

    monkeypatch.setattr(engine_versions, "_ask", ask)
    roles = [role(name, 1, image="vllm/vllm-openai:v0.30.0") for name in ("prefill", "decode")]
    other = [role("prefill", 1, image="registry.example/own:v7")]
    operation = SimpleNamespace(memory=dict[str, Any]())
    context: Any = SimpleNamespace(operation=operation, step_id=1, attempt=1)
    wanted = {NEW: roles, OLD: other}
    found, remember = engine_versions.versions_of(context, [], wanted)
    assert found == {NEW: {"prefill": "0.30.0", "decode": "0.33.1"}, OLD: {}}
    assert remember["engine_versions"]["known"][NEW]["prefill"] == ["0.30.0", engine_versions.TAGGED]
    operation.memory |= remember
    assert engine_versions.versions_of(context, [], wanted)[0] == found and len(asked) == 1
    context.attempt = 2
    engine_versions.versions_of(context, [], wanted)
    assert len(asked) == 2, "a retry asks again"
