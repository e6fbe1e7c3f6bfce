"""A whole path is put back while requests run: no pair of revisions is mixed, and what was refused is counted."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.operations.models import Operation
from controlplane.recovery.models import Combination
from controlplane.recovery.parts import traffic
from deploy.demo.engines.roles import engine_pair
from deploy.demo.path import ServedPath
from deploy.demo.router.config import example_config
from deploy.demo.router.manifests import inference_objective, router_objects
from deploy.rig import Rig, until, workloads
from tests.cluster.driving import Lockstep, install_target, lockstep_on
from tests.cluster.restoring import (
    Losses,
    asked,
    capture,
    edited_policy,
    held,
    look_often,
    parts,
    restore,
    rolled_out,
    turned,
    turned_with_losses,
)
from tests.cluster.test_restore_rescue import begun, rescue

pytestmark = [pytest.mark.rig, pytest.mark.django_db(transaction=True)]
Json = dict[str, Any]
ROUTES = "/apis/gateway.networking.k8s.io/v1/namespaces"


@pytest.fixture
def lockstep(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lockstep]:
    """A fresh installation."""
    install_target(rig)
    look_often(monkeypatch)
    monkeypatch.setattr(traffic, "DRAIN_SETTLES", 2.0)
    with lockstep_on(rig, environment="development") as running:
        yield running


@pytest.fixture
def served(rig: Rig, namespace: str) -> Iterator[ServedPath]:
    """Gateway and engines in the namespace of the test."""
    with ServedPath(rig, namespace) as path:
        yield path


class Load:
    """Requests without a pause from some threads; statuses are counted."""

    def __init__(self, served: ServedPath, threads: int = 3) -> None:
        self.statuses: Counter[int] = Counter()
        self._served, self._stop = served, threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(threads)]

    def __enter__(self) -> Load:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for each in self._threads:
            each.join(15)

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(0.02):
            number += 1
            status, _, _ = self._served.ask(f"Tell me a long story, number {number}: " + "word " * 80)
            self.statuses[status] += 1


def other_router(served: ServedPath, name: str, config: str) -> None:
    """Another configuration, as a push does it."""
    docs = router_objects(
        release=name,
        namespace=served.namespace,
        set_name=name,
        config=config,
        failure_mode="FailClose",
    )
    served.rig.apply([doc for doc in docs if doc["kind"] in ("ConfigMap", "Deployment")])
    until("served again", lambda: served.ask("Are you there?")[0] == 200, limit_s=60)


def weights(served: ServedPath, name: str) -> list[int]:
    """Weights of the route's first rule."""
    route = served.rig.client().get(f"{ROUTES}/{served.namespace}/httproutes/{name}")
    return [ref.get("weight", 1) for ref in route["spec"]["rules"][0]["backendRefs"]]


def test_all_parts_in_one_operation_under_load(lockstep: Lockstep, served: ServedPath) -> None:
    client, place = served.rig.client(), served.namespace
    label = served.serve("chat", engine_pair(2, 1))
    served.rig.apply(inference_objective("batch", place, "chat", -1))
    found = capture(lockstep, place, "chat")
    text = found.document["pools"][0]["router"]["config"]["text"]
    bad = rolled_out(served.rig, place, "chat", engine_pair(2, 1, env={"EXTRA": "changed"}))
    other_router(served, "chat", text + "\n# another configuration\n")
    served.rig.apply(served.route("chat", {"chat": 7}))
    served.rig.apply(inference_objective("batch", place, "chat", 5))

    plan = asked(lockstep, f"combinations/{found.pk}/plan").result
    assert not plan["refusals"] and not plan["outage"], plan["refusals"]
    assert [part["name"] for part in plan["parts"]] == ["workload", "router", "objectives", "weights"]

    served.reset_books()
    with Load(served) as load:
        until("some answers", lambda: load.statuses[200] > 10)
        restored = restore(lockstep, found, confirm="chat")
        operation = turned(lockstep, restored, limit_s=150)
    books = served.books()
    assert books["mixed"]["all"] == 0, books["by_pair"]
    revisions = {each["decode_revision"] for each in books["by_pair"] if each["status"] == 200}
    assert revisions == {label, bad}, "requests were served all the way"
    assert load.statuses[200] > 20, load.statuses
    # The router is replaced (Recreate): its gap is the only time in which requests are refused.
    assert set(load.statuses) <= {200, 500, 503}, load.statuses

    assert workloads.wait_settled(client, place, "chat") == label
    assert weights(served, "chat") == [1]
    stands = client.get(f"/apis/llm-d.ai/v1alpha2/namespaces/{place}/inferenceobjectives/batch")
    assert stands["spec"]["priority"] == -1
    assert operation.memory["bits"]["verdict"] == "same-bits", operation.memory["bits"]
    assert parts(lockstep, restored) == [
        ("workload", True), ("router", True), ("objectives", True), ("weights", True)
    ]  # fmt: skip
    diff = asked(lockstep, f"combinations/{found.pk}/diff").result["parts"]
    assert {part["verdict"] for part in diff} <= {"same", "same-bits"}, diff


def test_without_screening_it_is_refused_or_traffic_is_drained_first(
    lockstep: Lockstep, served: ServedPath
) -> None:
    place = served.namespace
    bare = without_screener(example_config("chat"))
    label = served.serve("chat", engine_pair(2, 1), config=bare)
    found = capture(lockstep, place, "chat")
    rolled_out(served.rig, place, "chat", engine_pair(2, 1, env={"EXTRA": "changed"}))
    refused = restore(lockstep, found)
    finding = held(lockstep, refused, "no-screening")
    assert finding["facts"]["order"]["outage"] is True
    assert weights(served, "chat") == [1], "nothing was written"
    operation = Operation.objects.get(pk=refused.operation_id)
    assert lockstep.verb(operation, "abort", {"reason": "agree first"}).status_code == 200
    turned(lockstep, refused, "aborted")

    served.reset_books()
    with Load(served) as load:
        until("some answers", lambda: load.statuses[200] > 10)
        restored = restore(lockstep, found, options={"accept_outage": True})
        turned(lockstep, restored, limit_s=150)
        before = load.statuses[200]
        until("answers again", lambda: load.statuses[200] > before + 5)
    assert [name for name, _ in parts(lockstep, restored)] == ["drain", "workload", "weights"]
    assert served.books()["mixed"]["all"] == 0, served.books()["by_pair"]
    assert sum(count for status, count in load.statuses.items() if status != 200) > 0, "the outage is counted"
    assert workloads.wait_settled(served.rig.client(), place, "chat") == label
    assert weights(served, "chat") == [1]


def bare_and_changed(lockstep: Lockstep, served: ServedPath) -> Combination:
    """A combination behind a router without screening, at weight 4; then the set is rolled out to something else."""
    served.serve("chat", engine_pair(2, 1), config=without_screener(example_config("chat")))
    served.rig.apply(served.route("chat", {"chat": 4}))
    found = capture(lockstep, served.namespace, "chat")
    rolled_out(served.rig, served.namespace, "chat", engine_pair(2, 1, env={"EXTRA": "changed"}))
    return found


def test_an_abort_gives_drained_traffic_back(lockstep: Lockstep, served: ServedPath) -> None:
    found = bare_and_changed(lockstep, served)
    restored = restore(lockstep, found, options={"accept_outage": True})
    operation = Operation.objects.get(pk=restored.operation_id)
    lockstep.until("drained", lambda: weights(served, "chat") == [0])
    assert lockstep.verb(operation, "abort", {"reason": "not now"}).status_code == 200
    turned(lockstep, restored, "aborted")
    assert weights(served, "chat") == [4]
    until("served again", lambda: served.ask("Are you there?")[0] == 200, limit_s=30)


def test_a_rescue_that_was_lost_gives_back_what_it_drained(
    lockstep: Lockstep, served: ServedPath, tmp_path: Path
) -> None:
    """Also on a route that no combination has recorded: its weight stands in the journal of the lost one."""
    place = f"{bare_and_changed(lockstep, served).namespace}/chat"
    served.rig.apply(served.route("late", {"chat": 3}))
    with begun(lockstep, tmp_path / "log", place, "--accept-outage") as lost:
        until("drained", lambda: weights(served, "chat") == weights(served, "late") == [0], limit_s=60)
        lost.kill()
    done = rescue(lockstep, "restore", place, "--yes", "chat", "--stable-for", "0.5", "--accept-outage")
    assert done.returncode == 0, done
    assert (weights(served, "chat"), weights(served, "late")) == ([4], [3])


def test_nothing_is_drained_for_a_hold_that_nobody_would_enforce(
    lockstep: Lockstep, served: ServedPath
) -> None:
    found = bare_and_changed(lockstep, served)
    with edited_policy(lockstep.rig) as said:
        restored = restore(lockstep, found, options={"accept_outage": True})
        assert said in held(lockstep, restored, "hold-not-proved")["sentence"]
        assert weights(served, "chat") == [4]


def test_a_worker_lost_after_every_single_write_of_the_path(lockstep: Lockstep, served: ServedPath) -> None:
    """Router, objectives and weights differ, the workload does not: each write loses its worker once."""
    client, place = served.rig.client(), served.namespace
    label = served.serve("chat", engine_pair(2, 1))
    served.rig.apply(inference_objective("batch", place, "chat", -1))
    found = capture(lockstep, place, "chat")
    text = found.document["pools"][0]["router"]["config"]["text"]
    other_router(served, "chat", text + "\n# another configuration\n")
    served.rig.apply(served.route("chat", {"chat": 7}))
    client.delete(f"/apis/llm-d.ai/v1alpha2/namespaces/{place}/inferenceobjectives/batch")
    losses, restored = Losses(), restore(lockstep, found)
    turned_with_losses(lockstep, restored, losses)
    assert {"recovery.put_router", "recovery.put_objectives", "recovery.put_weights"} <= losses.steps
    assert parts(lockstep, restored) == [("router", True), ("objectives", True), ("weights", True)]
    assert (weights(served, "chat"), workloads.wait_settled(client, place, "chat")) == ([1], label)
    diff = asked(lockstep, f"combinations/{found.pk}/diff").result["parts"]
    assert {part["verdict"] for part in diff} <= {"same", "same-bits"}, diff


def without_screener(config: str) -> str:
    """The configuration with no plugin that keeps requests inside one revision."""
    import yaml

    document = yaml.safe_load(config)
    names = {
        each.get("name") or each["type"]
        for each in document["plugins"]
        if each["type"] == "disaggregatedset-rollout-screener"
    }
    document["plugins"] = [
        each for each in document["plugins"] if (each.get("name") or each["type"]) not in names
    ]
    for profile in document["schedulingProfiles"]:
        profile["plugins"] = [each for each in profile["plugins"] if each["pluginRef"] not in names]
    return str(yaml.safe_dump(document))
