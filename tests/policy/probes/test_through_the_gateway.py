"""Only answers that came through the gateway, of which it is known who gave them, prove the path."""

from __future__ import annotations

from dataclasses import replace

from policy.probes import Group, GroupCounters, ProbeResult, Surroundings, judge_probes

NEW = "bbbbbbbb"
GROUPS = [Group("p-0", "prefill", NEW), Group("d-0", "decode", NEW)]
GOOD = ProbeResult(
    0, asked=NEW, stamped=NEW, decode="d-0", prompt_tokens=60, external_tokens=60, output_tokens=16
)
COUNTED = Surroundings(counters={"p-0": GroupCounters(requests=30, error_finishes=0)})


def series(count: int, like: ProbeResult, *, first: int = 0) -> list[ProbeResult]:
    return [replace(like, number=first + number) for number in range(count)]


def test_a_series_through_the_gateway_is_green() -> None:
    verdict = judge_probes(series(24, GOOD), GROUPS, around=COUNTED)
    assert (verdict.verdict, verdict.succeeded) == ("green", 24), verdict.sentence


def test_direct_answers_do_not_stand_in_for_a_gateway_that_turned_all_away() -> None:
    away = replace(GOOD, status=429, dropped_reason="rejected-saturated", stamped="", decode="")
    direct = replace(GOOD, stamped="", prefill="p-0", direct=True)
    results = [*series(24, away), *series(40, direct, first=24)]
    verdict = judge_probes(results, GROUPS)
    assert (verdict.verdict, verdict.reason, verdict.judged) == ("not-evaluable", "too-few-probes", 0)
    assert not verdict.missing, "that the groups can serve is seen all the same"


def test_direct_answers_fill_coverage_and_take_none_away() -> None:
    """Two prefill groups, one seen by its counters; asking the other directly must not hide the first."""
    groups = [*GROUPS, Group("p-1", "prefill", NEW)]
    direct = replace(GOOD, stamped="", prefill="p-1", direct=True)
    verdict = judge_probes([*series(24, GOOD), *series(2, direct, first=24)], groups, around=COUNTED)
    assert verdict.verdict == "green", verdict.sentence
    assert {each.group.id: each.seen_by for each in verdict.coverage} == {
        "p-0": "counters",
        "d-0": "answers",
        "p-1": "answers",
    }


def test_answers_of_nobody_known_prove_no_revision() -> None:
    blind = replace(GOOD, stamped="", decode="")
    around = Surroundings(
        counters={name: GroupCounters(requests=30, error_finishes=0) for name in ("p-0", "d-0")}
    )
    verdict = judge_probes(series(24, blind), GROUPS, around=around)
    assert (verdict.verdict, verdict.reason) == ("not-evaluable", "not-seen"), verdict.sentence


def test_a_stamp_of_another_revision_is_never_green() -> None:
    other = replace(GOOD, stamped="aaaaaaaa", decode="")
    assert judge_probes(series(24, other), GROUPS, around=COUNTED).verdict != "green"
