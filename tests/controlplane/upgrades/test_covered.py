"""A hold lets nobody past on what probes saw of pods that serve no more."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.operations.contract import Done, Outcome, Wait
from controlplane.paths.models import GoldenOutputs, Pool, ProbeSeries
from controlplane.paths.objects import restarts_of
from controlplane.upgrades.steps import covered, hold
from controlplane.upgrades.steps.gates import Gated
from tests.controlplane.operations.toy import make_cluster
from tests.controlplane.paths.world import engines, objects
from tests.controlplane.upgrades.gating import NEW, NOW, PLACE, PROVED, Standing, series, stand

pytestmark = pytest.mark.django_db
Json = dict[str, Any]
COUNTS = {("prefill", NEW): 1, ("decode", NEW): 1}
READY_FOR = 30.0


class AtHold:
    """An upgrade at its first hold; `pods` are what serves now."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pods = engines("chat", COUNTS)
        for pod in self.pods:
            pod["metadata"]["uid"] = f"first-{pod['metadata']['name']}"
        pool = Pool.objects.create(
            cluster=make_cluster(), uid="uid-1", namespace="models", name="chat", observed_at=timezone.now()
        )
        self.series = ProbeSeries.objects.create(
            pool=pool,
            kind="probe",
            subject_kind="operation",
            subject_id="1",
            key=PLACE,
            revision=NEW,
            state="judged",
            plan={"groups": self.groups()},
            created_at=timezone.now(),
            finished_at=timezone.now(),
        )
        evidence = [{**series("probe"), "series": self.series.pk}, {**series("parity"), "series": 0}]
        options = {"hold_max_age": 3600, "hold_end": "abort", "promote": "manual"}
        self.standing: Standing = stand(
            monkeypatch,
            memory={
                "options": options,
                "hold_slots": [],
                "stable_for": READY_FOR,
                "path_evidence": {PLACE: {**PROVED, "series": evidence}},
            },
        )
        self.promoted: Json = {}
        self.moved: list[int] = []
        self._outside(monkeypatch)

    def _outside(self, monkeypatch: pytest.MonkeyPatch) -> None:
        green = Gated("green", "All are green.", "")
        usual: dict[str, Callable[..., Any]] = {
            "look": lambda context: self.standing.live,
            "foreign_write": lambda context, live: None,
            "altered": lambda live, new: None,
            "missing_sets": lambda *_: [],
            "breach": lambda *_: [],
            "restore_guards": lambda kube: [],
            "judge_metric_gates": lambda *_, **__: green,
            "path_moved": lambda context: self.moved.append(1),
        }
        for name, stand_in in usual.items():
            monkeypatch.setattr(hold, name, stand_in)
        monkeypatch.setattr(covered, "read_objects", lambda kube, place: objects("chat", pods=self.pods))

    def groups(self) -> list[list[Any]]:
        """The pods as a series writes them down."""
        return [
            [pod["metadata"]["name"], "any", NEW, pod["metadata"]["uid"], restarts_of(pod)]
            for pod in self.pods
        ]

    def replace(self, number: int = 0) -> str:
        """A pod of the same name, newly made; its name."""
        self.pods = deepcopy(self.pods)
        self.pods[number]["metadata"]["uid"] += "-again"
        return str(self.pods[number]["metadata"]["name"])

    def look(self, *, after: float = 0.0) -> Outcome:
        """One look at the hold, so many seconds later; what it remembers is remembered."""
        self.standing.now += timedelta(seconds=after)
        self.standing.pods = self.pods
        context = self.standing.context()
        context.operation.promoted = self.promoted
        outcome = hold.hold(context, slices=["0"], row=1, rules=["first-complete-row"])
        assert isinstance(outcome, Done | Wait), outcome
        self.standing.memory |= outcome.remember
        return outcome

    def promote(self) -> None:
        """A person's word at this step."""
        self.promoted = {"hold_key": "slice-0-row-1", "attempt": 1}

    def looked_at_again(self) -> None:
        """The path step and the hold that were put in: probes saw what serves, and a new step stands here."""
        self.series.plan = {"groups": self.groups()}
        self.series.save()
        self.promoted = {}
        self.standing.step += 2


@pytest.fixture
def upgrade(monkeypatch: pytest.MonkeyPatch) -> AtHold:
    return AtHold(monkeypatch)


def names(outcome: Outcome) -> list[str]:
    """The steps that an outcome puts in."""
    assert isinstance(outcome, Done), outcome
    return [step.name for step in outcome.append]


def test_pods_that_probes_have_seen_are_promoted(upgrade: AtHold) -> None:
    asks = upgrade.look()
    assert isinstance(asks, Wait) and asks.hold_key
    upgrade.promote()
    assert names(upgrade.look()) == [] and upgrade.moved, "it goes on"


def test_a_replaced_pod_has_the_path_looked_at_again_once_it_stands(upgrade: AtHold) -> None:
    name = upgrade.replace()
    upgrade.promote()
    waits = upgrade.look()
    assert isinstance(waits, Wait) and not waits.hold_key, "nobody is asked on old evidence"
    assert name in waits.what and "probes have not seen it" in waits.what
    assert waits.until is not None and waits.then == "the operation aborts"
    assert isinstance(upgrade.look(after=READY_FOR - 1), Wait)
    again = upgrade.look(after=2)
    assert names(again) == ["upgrades.prove_path", "upgrades.hold"]
    assert isinstance(again, Done) and name in again.result["path"]
    upgrade.looked_at_again()
    assert names(upgrade.look()) == [], "the word that was given counts on"


def test_a_finding_at_the_path_forgets_the_word_that_was_given(upgrade: AtHold) -> None:
    upgrade.replace()
    upgrade.promote()
    upgrade.look()
    upgrade.look(after=READY_FOR)
    upgrade.looked_at_again()
    upgrade.standing.memory["promoted_past"] = {}  # as prove_path remembers with a finding
    asks = upgrade.look()
    assert isinstance(asks, Wait) and asks.hold_key


def test_a_word_for_another_attempt_does_not_count(upgrade: AtHold) -> None:
    upgrade.replace()
    upgrade.promote()
    upgrade.look()
    upgrade.look(after=READY_FOR)
    upgrade.looked_at_again()
    upgrade.standing.attempt = 2
    asks = upgrade.look()
    assert isinstance(asks, Wait) and asks.hold_key


def test_a_group_more_than_probes_have_seen_is_noticed(upgrade: AtHold) -> None:
    upgrade.pods = [*upgrade.pods, engines("chat", {("decode", NEW): 2})[1]]
    upgrade.look()
    assert names(upgrade.look(after=READY_FOR))[0] == "upgrades.prove_path"


def test_a_pod_that_flaps_is_waited_for_and_not_probed_each_time(upgrade: AtHold) -> None:
    for _ in range(20):
        upgrade.replace()
        assert isinstance(upgrade.look(after=READY_FOR - 1), Wait)
    assert isinstance(upgrade.look(after=1), Wait)
    assert names(upgrade.look(after=READY_FOR))[0] == "upgrades.prove_path"


def test_an_engine_that_restarted_in_place_is_another_one(upgrade: AtHold) -> None:
    upgrade.pods = deepcopy(upgrade.pods)
    upgrade.pods[1]["status"]["containerStatuses"] = [{"name": "engine", "restartCount": 1}]
    waits = upgrade.look()
    assert isinstance(waits, Wait) and not waits.hold_key and "probes have not seen it" in waits.what
    assert names(upgrade.look(after=READY_FOR))[0] == "upgrades.prove_path"
    upgrade.looked_at_again()
    asks = upgrade.look()
    assert isinstance(asks, Wait) and asks.hold_key
    upgrade.pods[1]["status"]["containerStatuses"][0]["restartCount"] = 2
    upgrade.series.plan = {"groups": [group[:4] for group in upgrade.groups()]}
    upgrade.series.save()
    asks = upgrade.look()
    assert isinstance(asks, Wait) and asks.hold_key, "a plan of an older version did not write them down"


def test_a_group_whose_pod_is_gone_is_waited_for_whatever_its_status_counts(upgrade: AtHold) -> None:
    """As while the LeaderWorkerSet manager is away: its status goes on saying that all are ready."""
    prefill, decode = upgrade.pods
    upgrade.pods = [prefill]
    upgrade.promote()
    waits = upgrade.look(after=READY_FOR)
    assert isinstance(waits, Wait) and not waits.hold_key
    assert f"decode of {NEW} has 0 of 1 groups ready" in waits.what and "prefill" not in waits.what
    assert waits.until is not None and waits.then == "the operation aborts"
    upgrade.pods = [prefill, decode]
    assert names(upgrade.look()) == []


def test_a_seen_group_too_many_is_waited_for(upgrade: AtHold) -> None:
    upgrade.pods = [*upgrade.pods, engines("chat", {("decode", NEW): 2})[1]]
    upgrade.looked_at_again()
    waits = upgrade.look()
    assert isinstance(waits, Wait) and f"decode of {NEW} has 2 of 1 groups ready" in waits.what


def test_green_on_golden_outputs_that_were_revoked_is_looked_at_again(upgrade: AtHold) -> None:
    golden = GoldenOutputs.objects.create(
        pool=Pool.objects.get(),
        revision="aaaa1111",
        model="m",
        prompt_set="1",
        answers={},
        digest="d",
        verified_by=[{"kind": "person", "id": 1}],
        verified_at=timezone.now(),
        recorded_at=timezone.now(),
    )
    place = upgrade.standing.memory["path_evidence"][PLACE]
    place["series"][1]["golden"] = {"id": golden.pk, "revision": "aaaa1111"}
    asks = upgrade.look()
    assert isinstance(asks, Wait) and asks.hold_key
    GoldenOutputs.objects.update(verified_by=[])
    upgrade.promote()
    again = upgrade.look()
    assert names(again) == ["upgrades.prove_path", "upgrades.hold"]
    assert isinstance(again, Done) and f"golden outputs {golden.pk}" in again.result["path"]


def test_the_age_of_the_hold_ends_the_waiting(upgrade: AtHold) -> None:
    upgrade.replace()
    upgrade.look()
    upgrade.standing.now += timedelta(hours=2)
    context = upgrade.standing.context()
    context.operation.promoted = {}
    ended = hold.hold(context, slices=["0"], row=1, rules=[])
    assert "maximum age" in getattr(ended, "reason", "")


def test_pods_that_no_probe_can_reach_are_not_waited_for(
    upgrade: AtHold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of a group, a pod on its way out, and one that the pool does not select."""
    worker, leaving, aside = engines("chat", {("decode", NEW): 4})[1:]
    worker["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/worker-index"] = "1"
    leaving["metadata"]["deletionTimestamp"] = "2026-11-30T11:59:00Z"
    seen = list(upgrade.pods)
    upgrade.pods = [*seen, worker, leaving]
    asks = upgrade.look()
    assert isinstance(asks, Wait) and asks.hold_key

    for pod in seen:
        pod["metadata"]["labels"]["served"] = "yes"

    def some_selected(kube: Any, place: str) -> Any:
        found = objects("chat", pods=upgrade.pods)
        found.pools[0]["spec"]["selector"]["matchLabels"]["served"] = "yes"
        return found

    monkeypatch.setattr(covered, "read_objects", some_selected)
    aside["metadata"]["uid"] = "aside"
    upgrade.pods = [seen[0], aside]
    asks = upgrade.look()
    assert isinstance(asks, Wait) and asks.hold_key
    aside["metadata"]["labels"]["served"] = "yes"
    waits = upgrade.look()
    assert isinstance(waits, Wait) and not waits.hold_key, "once it is selected, it is"


def test_evidence_whose_series_is_gone_is_no_evidence(upgrade: AtHold) -> None:
    upgrade.series.delete()
    upgrade.look()
    assert names(upgrade.look(after=READY_FOR))[0] == "upgrades.prove_path"


def test_a_path_that_was_not_examined_is_not_asked_for(upgrade: AtHold) -> None:
    upgrade.standing.memory["path_evidence"] = {
        PLACE: {"at": NOW.isoformat(), "result": "none", "series": []}
    }
    upgrade.replace()
    asks = upgrade.look()
    assert isinstance(asks, Wait) and asks.hold_key
