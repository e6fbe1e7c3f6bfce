"""The metric source on the rig: shares as measured, kinds of findings told apart, gates over real numbers.

A real Prometheus scrapes the served path by the rig's recipe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from controlplane.operations.models import Operation
from controlplane.paths import rounds
from controlplane.paths.models import Pool
from controlplane.upgrades.steps import gates
from deploy.demo.engines.roles import engine_pair
from deploy.demo.path import ServedPath
from deploy.demo.router.manifests import inference_objective
from deploy.rig import Rig
from deploy.rig.workloads import ROLE_LABEL
from tests.cluster.driving import Lockstep, install_target, lockstep_on
from tests.cluster.midway import look_often
from tests.cluster.test_path import probed, series, upgraded
from workers.watching_paths import PathsWatch

pytestmark = [pytest.mark.rig, pytest.mark.django_db(transaction=True)]
Json = dict[str, Any]
REVISION = "x-disagg-revision"


@pytest.fixture(scope="module")
def prometheus(rig: Rig) -> Iterator[str]:
    """One for all tests of this module: each has a namespace of its own."""
    yield rig.start_prometheus()
    rig.stop_part("prometheus")


@pytest.fixture
def lockstep(rig: Rig, prometheus: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lockstep]:
    """A fresh installation whose cluster has a metric source."""
    install_target(rig)
    look_often(monkeypatch)
    monkeypatch.setattr(gates, "JUDGED_EVERY", 0.5)
    monkeypatch.setattr(gates, "LOOK_EVERY", 0.3)
    monkeypatch.setattr(rounds, "SCRAPED_AFTER_S", 2.0)  # scrapes are a second apart here
    with lockstep_on(rig, environment="development") as running:
        running.cluster.metrics_url = prometheus
        running.cluster.watcher_fence = 1
        running.cluster.save(update_fields=["metrics_url", "watcher_fence"])
        yield running


@pytest.fixture
def served(rig: Rig, namespace: str) -> Iterator[ServedPath]:
    """Gateway and engines in the namespace of the test."""
    with ServedPath(rig, namespace) as path:
        yield path


@pytest.fixture
def pool(
    lockstep: Lockstep, served: ServedPath, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Pool]:
    """``pool(**settings)`` once a model is served."""
    return lambda **settings: probed(lockstep, served, tmp_path, monkeypatch, **settings)


def ask_many(served: ServedPath, count: int, *, revision: str = "") -> list[str]:
    """So many requests of clients, or pinned ones; which revision answered each."""
    pin: Json = {"probe": True, "headers": {REVISION: revision}} if revision else {}

    def ask(number: int) -> str:
        status, document, headers = served.ask(f"Question {number} of {count}: what is the time?", **pin)
        assert status == 200, (status, document)
        return str(headers[REVISION])

    with ThreadPoolExecutor(8) as askers:
        return list(askers.map(ask, range(count)))


def measured(lockstep: Lockstep, pool: Pool) -> Json:
    """What a round of the paths watch finds of the pool."""
    watch = PathsWatch(cluster_id=lockstep.cluster.pk, name="rig", fence=lambda: 1, stop=threading.Event())
    assert watch.read() is not None
    found: Json = lockstep.operator.get(f"/api/v1/pools/{pool.pk}").json()
    assert found["measured_age"] is not None and found["measured_age"] < 30
    return dict(found["measured"])


def gates_of(lockstep: Lockstep, operation: Operation) -> Json:
    """The gates as the API shows them: the overall verdict, and each by id."""
    found = lockstep.operator.get(f"/api/v1/operations/{operation.pk}").json()["gates"] or {"gates": []}
    return {**found, "by_id": {each["id"]: each for each in found["gates"]}}


def new_revision(lockstep: Lockstep, operation: Operation) -> str:
    """The new label, as soon as the controller has made it."""
    lockstep.until("the new revision", lambda: lockstep.state(operation).memory["new"], limit_s=60)
    return str(operation.memory["new"])


def test_planned_and_measured_shares_agree_at_a_hold(
    lockstep: Lockstep, served: ServedPath, pool: Callable[..., Pool]
) -> None:
    old = served.serve("chat", engine_pair())
    row = pool()
    operation = upgraded(lockstep, served, promote="manual")
    lockstep.reached(operation, "waiting", limit_s=90)
    new = operation.memory["new"]
    shown = gates_of(lockstep, operation)
    assert shown["verdict"] == "green", shown
    assert shown["by_id"]["failed-transfers"]["verdict"] == "green", shown["by_id"]["failed-transfers"]
    assert (
        shown["by_id"]["failed-transfers"]["versions"] == ["0.30.0"]
        and shown["by_id"]["failed-transfers"]["queries"]
    )

    lockstep.until(
        "the plan to stand and to be scraped",
        lambda: measured(lockstep, row)["state"] == "no-traffic",
        limit_s=30,
    )
    stamps = ask_many(served, 300)

    def all_measured() -> Json | None:
        found = measured(lockstep, row)
        return found if found.get("shares", {}).get("total", 0) >= 300 else None

    seen = lockstep.until("all requests measured", all_measured, limit_s=30)
    lanes = {lane["revision"]: lane for lane in seen["shares"]["lanes"]}
    assert seen["agreement"]["verdict"] == "agree", seen["agreement"]
    assert {lane["revision"]: round(lane["planned"], 3) for lane in seen["agreement"]["lanes"]} == {
        old: 0.8,
        new: 0.2,
    }
    counts = {label: lane["count"] for label, lane in lanes.items()}
    assert counts == {label: stamps.count(label) for label in (old, new)}, "exactly as clients saw it"
    assert lanes[new]["low"] <= 0.2 <= lanes[new]["high"]
    assert seen["shares"]["skipped"]["share"] == 0 and seen["shares"]["unmatched"] == []
    assert {edge["kind"] for edge in seen["shares"]["edges"]} <= {"prefilled", "decode-only"}
    assert "aggregates" in seen["pairs"]["sentence"]
    links = {link["revision"]: link for link in seen["links"]}
    assert links[old]["bytes"]["state"] == "unknown" and links[old]["bytes"]["measured"] > 0
    assert "lockstep-demo/tiny" in links[old]["bytes"]["sentence"], (
        "nothing is guessed of a model that nobody knows"
    )
    assert lockstep.verb(operation, "abort", {"reason": "seen enough"}).status_code == 200
    assert lockstep.finished(operation, limit_s=120) == "aborted", lockstep.story()
    record = operation.record.document["gates"]["slice-0-row-1"]
    assert record["verdict"] == "green" and any(each["queries"] for each in record["gates"])


def kinds(found: Any) -> tuple[str, set[str], set[str]]:
    """Verdict, kinds and ids of the findings that make it red."""
    assert found.state == "judged", found.problem
    red = [each for each in found.verdict["findings"] if each["effect"] == "red"]
    return found.verdict["verdict"], {each["kind"] for each in red}, {each["id"] for each in red}


def test_a_faulty_part_and_a_short_lease_are_told_apart(
    rig: Rig, lockstep: Lockstep, served: ServedPath, pool: Callable[..., Pool]
) -> None:
    label = served.serve("chat", engine_pair())
    row = pool()

    def first(role: str) -> str:
        found = rig.client().items(
            f"/api/v1/namespaces/{served.namespace}/pods", selector=f"{ROLE_LABEL}={role}"
        )
        return str(found[0]["metadata"]["name"])

    def findings() -> tuple[str, set[str], set[str]]:
        return kinds(series(lockstep, row, kind="probe", revision=label))

    for role, fault in (("decode", {"crash": {"after_requests": 1}}), ("prefill", {"status": {"code": 500}})):
        served.fault({"pod": first(role)}, fault)
        probes = series(lockstep, row, kind="probe", revision=label)
        assert kinds(probes) == ("red", {"faulty-part"}, {"faulty-group"}), (role, probes.verdict["sentence"])
        red = [each for each in probes.verdict["findings"] if each["effect"] == "red"]
        assert [each["parts"] for each in red] == [[first(role)]]
        served.heal()
    served.fault({"role": "prefill"}, {"short_lease": {"seconds": 0.0, "overwritten": True}})
    assert findings() == ("red", {"wrong-setting"}, {"short-lease"})
    served.heal()
    lockstep.until("the path to be well again", lambda: findings()[0] == "green", limit_s=40)


def test_halves_that_do_not_fit_hold_the_upgrade_as_an_unsupported_pair(
    lockstep: Lockstep, served: ServedPath, pool: Callable[..., Pool]
) -> None:
    served.serve("chat", engine_pair())
    pool()
    operation = upgraded(lockstep, served)
    new = new_revision(lockstep, operation)
    served.fault({"pair": [new, new]}, {"incompatible_pair": {}})
    held = lockstep.reached(operation, "held", limit_s=90)
    assert held.finding["code"] == "path-red", held.finding
    probe = next(each for each in held.finding["facts"]["series"] if each["kind"] == "probe")
    told = {(each["kind"], each["id"]) for each in probe["findings"] if each["id"] != "guard-open"}
    assert told == {("unsupported-pair", "halves-do-not-fit")}, probe
    assert lockstep.verb(operation, "abort", {"reason": "they do not fit"}).status_code == 200


def test_a_slow_new_revision_holds_at_the_hold_until_it_is_measured_fast(
    rig: Rig, lockstep: Lockstep, served: ServedPath, pool: Callable[..., Pool]
) -> None:
    served.serve("chat", engine_pair())
    pool()
    ask_many(served, 80)
    operation = upgraded(
        lockstep, served, promote="manual", gates={"ttft": {"required": True, "minimum_samples": 20}}
    )
    new = new_revision(lockstep, operation)
    served.fault({"revision": new}, {"slow": {"factor": 20.0}})
    held = lockstep.reached(operation, "held", limit_s=90)
    assert held.finding["code"] == "gate-red", held.finding
    assert "TTFT p95" in held.finding["sentence"] and new in held.finding["sentence"]
    ttft = gates_of(lockstep, operation)["by_id"]["ttft"]
    assert ttft["verdict"] == "red" and ttft["value"] > ttft["limit"] and len(ttft["queries"]) == 2
    assert lockstep.counts(served.namespace, "chat")[new, "decode"] == 1, "nothing went on"

    served.heal()
    assert lockstep.verb(operation, "retry", {"reason": "mended"}).status_code == 200
    lockstep.until(
        "a look", lambda: lockstep.state(operation).waits_for.get("what", "").startswith("a verdict")
    )
    assert "TTFT p95" in operation.waits_for["what"], "what was measured before the retry counts no more"

    def passes() -> bool:
        """Traffic goes on: what comes before the first scrape of a window is not in its increase."""
        ask_many(served, 30)
        ask_many(served, 10, revision=new)
        lockstep.turn()
        return bool(lockstep.state(operation).waits_for.get("hold_key"))

    lockstep.until("green", passes, limit_s=30)
    shown = gates_of(lockstep, operation)
    assert (
        shown["by_id"]["ttft"]["verdict"] == "green" and shown["since_why"] == "measured anew after a retry"
    )

    rig.apply([inference_objective("urgent", served.namespace, "chat", 100)])
    lockstep.until(
        "the windows to begin anew",
        lambda: "objectives" in gates_of(lockstep, operation).get("since_why", ""),
        limit_s=20,
    )
    assert lockstep.verb(operation, "abort", {"reason": "enough"}).status_code == 200


def test_a_gate_without_traffic_waits_and_says_so(
    lockstep: Lockstep, served: ServedPath, pool: Callable[..., Pool]
) -> None:
    served.serve("chat", engine_pair())
    pool()
    required = {"error-ratio": {"required": True, "minimum_samples": 150}}
    operation = upgraded(lockstep, served, promote="manual", gates=required)
    lockstep.until(
        "the hold to wait for gates",
        lambda: "Errors (too few samples)" in lockstep.state(operation).waits_for.get("what", ""),
        limit_s=90,
    )
    assert operation.state == "working" and operation.waits_for["then"] == "the operation aborts"
    errors = gates_of(lockstep, operation)["by_id"]["error-ratio"]
    assert errors["verdict"] == "not-evaluable" and "of 150 samples" in errors["sentence"]
    ask_many(served, 200, revision=operation.memory["new"])
    lockstep.until("enough samples", lambda: lockstep.state(operation).waits_for.get("hold_key"), limit_s=30)
    assert gates_of(lockstep, operation)["by_id"]["error-ratio"]["verdict"] == "green"
    assert lockstep.verb(operation, "abort", {"reason": "enough"}).status_code == 200
