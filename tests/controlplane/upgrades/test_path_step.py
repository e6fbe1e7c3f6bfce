"""What a step makes of the series that it asked for, and what a finding does to the hold that it belongs to."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from controlplane.operations.contract import Done, Hold, Outcome
from controlplane.paths.models import GoldenOutputs, Pool, ProbeSeries
from controlplane.upgrades.steps import path
from controlplane.upgrades.steps.standing import attempt_of, promoted_past
from tests.controlplane.operations.toy import make_cluster
from tests.controlplane.upgrades.gating import NEW, OLD, PLACE, Standing, stand

pytestmark = pytest.mark.django_db
Json = dict[str, Any]
KEY = "slice-0-row-1"
OPTIONS = {"hold_max_age": 3600, "hold_end": "abort", "promote": "manual"}


class AtPath:
    """The look at the path before a hold, its series judged; `golden` are those that parity was compared with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pool = Pool.objects.create(
            cluster=make_cluster(), uid="uid-1", namespace="serving", name="chat", observed_at=timezone.now()
        )
        self.standing: Standing = stand(monkeypatch, memory={"options": OPTIONS})
        self.standing.memory["hold_base"] = {KEY: 2}
        self.standing.memory["promoted_past"] = {KEY: 3}
        self.phase = "forward"

    def series(self, kind: str, verdict: str, **said: Any) -> ProbeSeries:
        """One that this step asked for."""
        found = ProbeSeries.objects.create(
            pool=self.pool,
            kind=kind,
            subject_kind="operation",
            subject_id="1",
            key=f"{self.standing.attempt}-{kind}",
            revision=said.pop("revision", NEW),
            state="judged",
            verdict={"verdict": verdict, "sentence": "So it is.", **said},
            created_at=timezone.now(),
        )
        self.asked(*[*(self.standing.memory.get("path_asked") or {}).get("series", []), found.pk])
        return found

    def asked(self, *keys: int) -> None:
        """The series that the step remembers."""
        self.standing.memory["path_asked"] = {
            "step": self.standing.step,
            "attempt": self.standing.attempt,
            "series": list(keys),
        }

    def golden(self, revision: str, *vouchers: str) -> GoldenOutputs:
        """Golden outputs for which these kinds vouch."""
        return GoldenOutputs.objects.create(
            pool=self.pool,
            revision=revision,
            model="m",
            prompt_set="1",
            answers={},
            digest="d",
            verified_by=[{"kind": kind, "id": 1} for kind in vouchers],
            verified_at=timezone.now(),
            recorded_at=timezone.now(),
        )

    def prove(self, side: str = "new", at: str = PLACE) -> Outcome:
        """One look; what it remembers is remembered."""
        context = self.standing.context()
        context.operation.phase = self.phase
        context.operation.promoted = {}
        place: Json = {"slices": ["0"], "row": 1} if at == PLACE else {}
        outcome = path.prove_path(context, side=side, at=at, **place)
        assert isinstance(outcome, Done | Hold), outcome
        self.standing.memory |= outcome.remember
        return outcome

    def word_counts(self) -> tuple[int, bool]:
        """The attempt that the hold after this step will be, and whether a word given before counts there."""
        context = self.standing.context()
        context.operation.promoted = {}
        return attempt_of(context, KEY), promoted_past(context, KEY)


@pytest.fixture
def at_path(monkeypatch: pytest.MonkeyPatch) -> AtPath:
    return AtPath(monkeypatch)


def code(outcome: Outcome) -> str:
    return outcome.code if isinstance(outcome, Hold) else "done"


def test_a_green_path_keeps_votes_and_promote(at_path: AtPath) -> None:
    at_path.series("probe", "green")
    assert code(at_path.prove()) == "done"
    assert at_path.word_counts() == (3, True)


@pytest.mark.parametrize(("verdict", "finding"), [("red", "path-red"), ("not-evaluable", "path-not-proved")])
def test_a_finding_has_votes_and_promote_lapse_together(at_path: AtPath, verdict: str, finding: str) -> None:
    at_path.series("probe", verdict)
    assert code(at_path.prove()) == finding
    assert at_path.word_counts() == (4, False)
    at_path.standing.attempt = 2
    at_path.standing.memory["path_asked"] = {}
    at_path.series("probe", "green")
    assert code(at_path.prove()) == "done"
    at_path.standing.attempt = 1  # the hold's own step
    assert at_path.word_counts() == (4, False), "mended, it is another path than the one that was approved"


def test_a_path_that_is_not_the_approved_one_has_them_lapse_too(
    at_path: AtPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(path, "path_moved", lambda context: Hold("path-changed", "It moved.", "Put it back."))
    assert code(at_path.prove()) == "path-changed"
    assert at_path.word_counts() == (4, False)


def test_a_series_that_is_gone_has_seen_nothing(at_path: AtPath) -> None:
    at_path.series("probe", "green")
    gone = at_path.series("parity", "ok")
    gone_key = gone.pk
    gone.delete()
    held = at_path.prove()
    assert isinstance(held, Hold) and held.code == "path-not-proved"
    assert str(gone_key) in held.sentence and held.next_action[0].isupper()
    at_path.asked(gone_key)
    assert code(at_path.prove()) == "path-not-proved", "of none at all the more"


@pytest.mark.parametrize(
    ("revision", "vouchers", "finding"),
    [
        (OLD, ["person"], "done"),
        (NEW, ["combination"], "done"),
        (NEW, ["combination", "person"], "done"),
        (NEW, ["person"], "path-not-proved"),
        (OLD, [], "path-not-proved"),
    ],
)
def test_a_revision_is_no_proof_of_itself(
    at_path: AtPath, revision: str, vouchers: list[str], finding: str
) -> None:
    golden = at_path.golden(revision, *vouchers)
    at_path.series("parity", "ok", golden={"id": golden.pk, "revision": revision})
    found = at_path.prove()
    assert code(found) == finding
    if isinstance(found, Hold):
        assert str(golden.pk) in found.sentence and "ecord" in found.next_action


def test_the_old_revision_is_compared_with_its_own_answers_on_the_way_back(at_path: AtPath) -> None:
    golden = at_path.golden(OLD, "person")
    at_path.series("parity", "ok", revision=OLD, golden={"id": golden.pk, "revision": OLD})
    at_path.phase = "aborting"
    assert code(at_path.prove("old", "abort")) == "done"
