"""What gates make of an upgrade: red holds, silence keeps waiting, and windows begin anew when they should."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from controlplane.operations.contract import Done, Hold, Wait
from controlplane.upgrades.gate_rules import IDS
from controlplane.upgrades.steps.gates import JUDGED_EVERY, PLACES_KEPT, gated_row, red_hold
from policy.gates import Measurement
from tests.controlplane.upgrades.gating import (
    GOOD,
    NOW,
    PLACE,
    PROVED,
    Standing,
    pods,
    series,
    stand,
    with_objectives,
)

Json = dict[str, Any]
SILENT = Measurement("no-traffic")
SLOW = replace(GOOD["ttft"], value=9.0)


def test_all_green_passes_with_everything_kept_at_a_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    standing = stand(monkeypatch)
    gated = standing.judge(keep=True)
    assert (gated.verdict, gated.why, gated.again) == ("green", "", ()), gated.sentence
    assert {each["id"] for each in standing.memory["gates"]["gates"]} == set(IDS)
    assert standing.memory["gate_evidence"] == {PLACE: standing.memory["gates"]}
    assert standing.shown("ttft")["queries"] == ["q(ttft_p95)"] * 2, "bounded"


def test_a_red_gate_holds_with_its_number_and_query(monkeypatch: pytest.MonkeyPatch) -> None:
    standing = stand(monkeypatch, measured={**GOOD, "ttft": SLOW})
    gated = standing.judge()
    assert gated.verdict == "red"
    finding = red_hold(gated, hold_since={"x": "y"})
    assert finding.code == "gate-red" and "TTFT p95" in finding.sentence and "retry" in finding.next_action
    (red,) = finding.facts["red"]
    assert (red["id"], red["value"], red["limit"]) == ("ttft", 9.0, pytest.approx(1.3))
    assert red["queries"] and finding.remember["hold_since"] == {"x": "y"}
    assert standing.memory["gate_evidence"][PLACE]["verdict"] == "red", "red is always evidence"


def test_a_gate_that_is_only_shown_blocks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    standing = stand(monkeypatch, environment="staging", measured={**GOOD, "ttft": SLOW})
    assert standing.judge().verdict == "green"
    assert (standing.shown("ttft")["verdict"], standing.shown("ttft")["required"]) == ("red", False)


def test_silence_is_not_green_and_says_the_same_as_long_as_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    thin = replace(GOOD["error-ratio"], samples=12)
    standing = stand(monkeypatch, measured={**GOOD, "error-ratio": thin, "queue": SILENT})
    first = standing.judge()
    assert first.verdict == "not-evaluable"
    assert first.why == "Errors (too few samples); Waiting requests per decode group (no traffic)"
    standing.now += timedelta(seconds=60)
    standing.measured["error-ratio"] = replace(thin, samples=400)
    assert standing.judge().why == first.why, "else every look would be a change that people see"
    assert "400 of 1,000 samples" in standing.shown("error-ratio")["sentence"]


@pytest.mark.parametrize("row", [0, 1])
def test_before_the_new_revision_is_whole_nobody_is_asked(monkeypatch: pytest.MonkeyPatch, row: int) -> None:
    rows = [[[4, 2], [0, 0], "start"], [[4, 2], [1, 0], "step"], [[0, 0], [4, 2], "end"]]
    standing = stand(monkeypatch, memory={"rows": rows})
    assert standing.judge(row=row).verdict == "not-judged" and standing.asked == []


def test_an_upgrade_without_rules_has_no_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    standing = stand(monkeypatch, memory={"gate_rules": []})
    assert standing.judge().verdict == "not-judged" and not standing.asked


# --- sources


def test_without_a_source_that_was_acknowledged_probes_and_restarts_decide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    standing = stand(monkeypatch, metrics_url="", memory={"unmeasured": True})
    assert standing.judge().verdict == "green" and standing.asked == []
    shown = standing.shown("error-ratio")
    assert (shown["required"], shown["exempt"]) == (False, "the cluster has no metric source")
    standing = stand(monkeypatch, metrics_url="", memory={"unmeasured": True}, pods=pods(restarts=1))
    assert standing.judge().verdict == "red"


def test_a_source_that_was_taken_away_makes_nothing_green(monkeypatch: pytest.MonkeyPatch) -> None:
    standing = stand(monkeypatch, metrics_url="")
    assert standing.judge().verdict == "not-evaluable"
    assert "KV transfer failures (no data)" in standing.judge().why


def test_a_source_that_came_after_the_plan_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    standing = stand(monkeypatch, memory={"unmeasured": True}, measured={**GOOD, "ttft": SLOW})
    assert standing.judge().verdict == "red"


def test_what_probes_found_is_judged_and_where_none_are_sent_none_is_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bad = {**PROVED, "series": [series("probe"), series("parity", "red", value=0.3)]}
    standing = stand(monkeypatch, memory={"path_evidence": {PLACE: bad}})
    assert standing.judge().verdict == "red" and "So is the parity." in standing.shown("parity")["sentence"]
    standing = stand(monkeypatch, memory={"path_evidence": {}})
    assert standing.judge().verdict == "green"
    assert standing.shown("parity")["exempt"] == "no such series is sent here"


def test_where_nothing_looks_at_the_path_by_acknowledgement_the_rest_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fields: Json = {"metrics_url": "", "memory": {"unmeasured": True, "path_evidence": {}}}
    standing = stand(monkeypatch, **fields)
    gated = standing.judge()
    assert (gated.verdict, gated.sentence) == (
        "green",
        "1 required gates are green; none of them looks at the path.",
    )


# --- how often, and since when


def test_what_was_judged_a_moment_ago_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    standing = stand(monkeypatch)
    standing.judge()
    standing.now += timedelta(seconds=JUDGED_EVERY - 1)
    assert standing.judge().verdict == "green" and len(standing.asked) == 1
    standing.attempt = 2
    standing.judge()
    assert len(standing.asked) == 2, "a retry is never answered from memory"
    standing.now += timedelta(seconds=JUDGED_EVERY + 1)
    standing.judge()
    assert len(standing.asked) == 3


def look(standing: Standing) -> Any:
    """The next look, late enough to ask; from when samples count."""
    standing.now += timedelta(seconds=60)
    standing.judge()
    return standing.asked[-1].since


def test_windows_begin_anew_when_the_objectives_change(monkeypatch: pytest.MonkeyPatch) -> None:
    standing = stand(monkeypatch, seen=with_objectives(1, 5))
    assert look(standing) is None
    assert look(standing) is None
    standing.seen = with_objectives(1, 9)
    changed = look(standing)
    assert changed == standing.now
    assert look(standing) == changed, "once"
    assert "objectives" in standing.memory["gates"]["since_why"]
    standing.seen = with_objectives(1)
    assert look(standing) == standing.now


def test_a_retry_measures_anew_also_for_the_rows_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    standing = stand(monkeypatch)
    assert look(standing) is None
    standing.attempt, standing.first_claimed_at = 2, standing.now + timedelta(seconds=5)
    retried = standing.first_claimed_at
    assert look(standing) == retried
    assert look(standing) == retried
    standing.step, standing.attempt, standing.first_claimed_at = 8, 1, standing.now
    assert look(standing) == retried, "what was mended is not red again by what was before"


def test_incarnations_begin_with_the_leaderworkersets_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    standing = stand(monkeypatch)
    standing.judge()
    (subject,) = standing.asked
    assert subject.new.began == NOW - timedelta(minutes=10) and subject.old.began < subject.new.began
    assert subject.sides == {"prefill": "prefill", "decode": "decode"} and subject.old_whole


# --- between rows

STANDS = Done(result={"row": 1}, remember={"row": 1})


def test_between_rows_red_holds_and_silence_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    standing = stand(monkeypatch, measured={**GOOD, "ttft": SILENT})
    passed = gated_row(standing.context(), standing.live, ["0"], 1, STANDS)
    assert isinstance(passed, Done) and passed.result["gates"] == "not-evaluable"
    assert passed.remember["row"] == 1 and passed.remember["gates"]["verdict"] == "not-evaluable"
    assert "gate_evidence" not in passed.remember
    standing = stand(monkeypatch, measured={**GOOD, "ttft": SLOW})
    held = gated_row(standing.context(), standing.live, ["0"], 1, STANDS)
    assert isinstance(held, Hold) and held.code == "gate-red"


def test_a_row_that_does_not_stand_yet_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    standing, waits = stand(monkeypatch), Wait(1, "row 1")
    assert gated_row(standing.context(), standing.live, ["0"], 1, waits) is waits and not standing.asked


def test_what_was_red_once_passes_a_row_only_when_it_is_green(monkeypatch: pytest.MonkeyPatch) -> None:
    standing = stand(monkeypatch, measured={**GOOD, "ttft": SLOW})
    standing.judge()
    standing.measured["ttft"] = SILENT
    standing.attempt, standing.now = 2, standing.now + timedelta(seconds=60)
    waits = gated_row(standing.context(), standing.live, ["0"], 1, STANDS)
    assert isinstance(waits, Wait) and "TTFT p95" in waits.what
    standing.memory |= waits.remember
    standing.measured, standing.now = dict(GOOD), standing.now + timedelta(seconds=60)
    passed = gated_row(standing.context(), standing.live, ["0"], 1, STANDS)
    assert isinstance(passed, Done) and passed.remember["gates_were_red"] == []


def test_evidence_of_the_last_few_places_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    places = {f"slice-0-row-{row}": {"verdict": "green"} for row in range(20, 20 + PLACES_KEPT)}
    standing = stand(monkeypatch, memory={"gate_evidence": places})
    standing.judge(keep=True)
    kept = list(standing.memory["gate_evidence"])
    assert kept == [*list(places)[1:], PLACE]


def test_numbers_that_no_database_takes_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = replace(GOOD["queue"], value=float("inf"))
    standing = stand(monkeypatch, measured={**GOOD, "queue": endless})
    standing.judge()
    assert standing.shown("queue")["value"] is None and standing.shown("queue")["reason"] == "not-a-number"
