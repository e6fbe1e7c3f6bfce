"""An upgrade that stands at a row, without a database or a cluster: what its gates are judged in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from controlplane.fleet.models import Cluster
from controlplane.holds.live import LiveSet
from controlplane.kube.client import Listing
from controlplane.kube.resources import Resource
from controlplane.operations.contract import StepContext
from controlplane.paths.objects import PathObjects
from controlplane.upgrades.gate_rules import gates_of, rules_of
from controlplane.upgrades.steps import engine_versions, gates
from controlplane.upgrades.steps.gate_numbers import Numbers, Subject
from policy.gates import Gate, Measurement, default_gates
from tests.controlplane.fleet.world import make_child
from tests.controlplane.paths.world import NAMESPACE, engines, objects
from tests.controlplane.upgrades.given import live_set, pair, with_image

Json = dict[str, Any]
OLD, NEW = "aaaa1111", "bbbb2222"
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
PLACE = "slice-0-row-1"
GOOD: Mapping[str, Measurement] = {
    gate.id: Measurement(
        "value",
        0.0 if gate.comparison == "at-most" else 1.0,
        10_000,
        1.0,
        revision=NEW,
        version="0.30.0",
        baseline=Measurement("value", 1.0, 10_000, 1.0, revision=OLD, version="0.30.0"),
    )
    for gate in default_gates("production")
}


def series(kind: str, verdict: str = "", **numbers: Any) -> Json:
    """One entry of path evidence."""
    usual: Json = {
        "probe": {"value": 1.0, "samples": 24},
        "parity": {"value": 0.0, "samples": 24, "margin": 0.05},
    }
    return {
        "series": 1,
        "kind": kind,
        "pool": "chat",
        "revision": NEW,
        "verdict": verdict or {"probe": "green", "parity": "ok"}[kind],
        "sentence": f"So is the {kind}.",
        "numbers": {**usual[kind], **numbers},
    }


PROVED = {
    "at": (NOW - timedelta(seconds=60)).isoformat(),
    "result": "green",
    "series": [series("probe"), series("parity")],
}


def pods(restarts: int = 0, label: str = NEW) -> list[Json]:
    """Engine pods of a revision as the API server has them."""
    found = engines("chat", {("prefill", label): 1, ("decode", label): 1})
    for pod in found:
        pod["metadata"]["creationTimestamp"] = "2026-11-30T11:00:00Z"
        pod["status"]["containerStatuses"] = [{"name": "engine", "restartCount": 0}]
    found[0]["status"]["containerStatuses"][0] |= {
        "restartCount": restarts,
        "lastState": {"terminated": {"finishedAt": "2026-11-30T11:59:00Z"}} if restarts else {},
    }
    return found


@dataclass
class Standing:
    """An upgrade of 4+2 at its first complete row; fields are what a test changes."""

    environment: str = "production"
    changes: Json = field(default_factory=dict)
    measured: dict[str, Measurement] = field(default_factory=lambda: dict(GOOD))
    memory: Json = field(default_factory=dict)
    metrics_url: str = "http://prometheus.example"
    pods: list[Json] = field(default_factory=pods)
    seen: PathObjects | None = None
    now: datetime = NOW
    attempt: int = 1
    step: int = 7
    first_claimed_at: datetime = NOW
    asked: list[Subject] = field(default_factory=list)
    live: LiveSet = field(default_factory=lambda: at_row_one())

    def context(self) -> StepContext:
        """What a step is handed."""
        rules = rules_of(gates_of(self.environment, self.changes))  # type: ignore[arg-type]
        memory = {
            "namespace": NAMESPACE,
            "name": "chat",
            "roles": ["prefill", "decode"],
            "rows": [[[4, 2], [0, 0], "start"], [[4, 2], [1, 1], "step"], [[0, 0], [4, 2], "end"]],
            "old": OLD,
            "new": NEW,
            "slices": ["0"],
            "gate_rules": rules,
            "unmeasured": False,
            "path_evidence": {PLACE: PROVED},
        }
        operation = SimpleNamespace(id=1, memory={**memory, **self.memory}, started_at=NOW, phase="forward")
        cluster = Cluster(name="c", environment=self.environment, metrics_url=self.metrics_url)
        fields: Json = {"operation": operation, "cluster": cluster, "kube": self, "now": self.now}
        fields |= {"step_id": self.step, "step_index": 3, "attempt": self.attempt, "fence": 1}
        return StepContext(
            **fields, first_claimed_at=self.first_claimed_at, must_fence=False, still_ours=lambda: True
        )

    def list(self, resource: Resource, namespace: str | None = None, **_: Any) -> Listing:
        """Pods of the new revision."""
        assert resource.plural == "pods", resource
        return Listing(self.pods, "1")

    def judge(self, *, row: int = 1, keep: bool = False) -> gates.Gated:
        """The gates at a row; what is to be remembered is."""
        gated = gates.judge_metric_gates(self.context(), self.live, slices=["0"], row=row, keep=keep)
        self.memory |= gated.remember
        return gated

    def shown(self, name: str) -> Json:
        """One gate as it was judged last."""
        found: Json = next(each for each in self.memory["gates"]["gates"] if each["id"] == name)
        return found

    def ask(self, cluster: Cluster, subject: Subject, wanted: Sequence[Gate]) -> Numbers:
        """In place of the metric source."""
        self.asked.append(subject)
        numbers = Numbers()
        for gate in wanted:
            if gate.id in self.measured and gates.of_the_source(gate):
                numbers.put(gate, [self.measured[gate.id]], ())
                numbers.queries[gate.id] = [f"q({gate.metric})"] * 5
        return numbers


def at_row_one() -> LiveSet:
    """Both revisions side by side."""
    roles = pair()
    new = [make_child(each, NEW, 1) for each in roles]
    for child in new:
        child["metadata"]["creationTimestamp"] = "2026-11-30T11:50:00Z"
    return live_set(roles, extra=new)


def stand(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> Standing:
    """A standing upgrade whose outside is the test's."""
    standing = Standing(**fields)
    plan = SimpleNamespace(content={"roles_before": pair(), "roles_after": with_image(pair())})
    both = {(role, label): 1 for label in (OLD, NEW) for role in ("prefill", "decode")}
    usual = objects("chat", pods=engines("chat", both))
    monkeypatch.setattr(gates, "plan_of", lambda context: plan)
    monkeypatch.setattr(gates, "read_objects", lambda kube, namespace: standing.seen or usual)
    monkeypatch.setattr(gates, "ask_source", standing.ask)
    monkeypatch.setattr(engine_versions, "_ask", lambda context, pools, labels: {})
    return standing


def with_objectives(*priorities: int) -> PathObjects:
    """The pool with objectives of these priorities."""
    seen = objects("chat", pods=engines("chat", {("prefill", NEW): 1, ("decode", NEW): 1}))
    made = tuple(
        {
            "metadata": {"name": f"o{index}", "namespace": NAMESPACE, "uid": f"u{index}"},
            "spec": {"priority": priority, "poolRef": {"name": "chat"}},
        }
        for index, priority in enumerate(priorities)
    )
    return PathObjects(
        pools=seen.pools, routes=seen.routes, services=seen.services, deployments=seen.deployments,
        pods=seen.pods, objectives=made, config_map=seen.config_map,
    )  # fmt: skip
