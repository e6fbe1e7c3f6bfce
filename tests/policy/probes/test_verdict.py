from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from policy.gates import default_gates, judge_gate, measure_probes
from policy.probes import (
    Group,
    GroupCounters,
    ProbeResult,
    ProbeVerdict,
    Surroundings,
    disaggregation_of,
    judge_probes,
    outcome_of,
)

OLD, NEW = "7c9e41b2", "d03fa885"
GROUPS = [
    Group("p-0", "prefill", NEW),
    Group("p-1", "prefill", NEW),
    Group("d-0", "decode", NEW),
    Group("d-1", "decode", NEW),
]


def good(number: int, **fields: Any) -> ProbeResult:
    """A probe that was prefilled and decoded by groups of the new revision, in turn."""
    result = ProbeResult(
        number,
        asked=NEW,
        stamped=NEW,
        prefill=f"p-{number % 2}",
        decode=f"d-{number // 2 % 2}",
        prompt_tokens=600,
        external_tokens=592,
        output_tokens=64,
    )
    return replace(result, **fields)


def series(count: int = 24, **fields: Any) -> list[ProbeResult]:
    return [good(number, **fields) for number in range(count)]


def judge(results: list[ProbeResult], **fields: Any) -> ProbeVerdict:
    return judge_probes(results, GROUPS, **fields)


def findings(verdict: ProbeVerdict) -> dict[str, str]:
    return {finding.id: finding.kind for finding in verdict.findings}


def test_a_series_that_serves_everywhere_through_the_transfer_is_green() -> None:
    verdict = judge(series())
    assert (verdict.verdict, verdict.reason) == ("green", "passed")
    assert verdict.sentence == (
        "24 of 24 probes succeeded, 24 through a proved KV transfer; every one of 4 groups served."
    )
    assert set(verdict.served.values()) == {NEW}
    assert [(each.served, each.seen_by) for each in verdict.coverage] == [(12, "answers")] * 4


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({}, "ok"),
        ({"warmup": True, "status": 500}, "warm-up"),
        ({"status": 429, "dropped_reason": "rejected-saturated"}, "no-verdict"),
        ({"status": 503, "dropped_reason": "rejected-ttl-expired"}, "no-verdict"),
        ({"status": 429}, "no-verdict"),
        ({"status": 503}, "failed"),
        ({"status": 500}, "failed"),
        ({"status": None}, "failed"),
        ({"status": 401}, "refused"),
        ({"status": 404}, "refused"),
        ({"output_tokens": None}, "no-verdict"),
        ({"output_tokens": 0}, "failed"),
        ({"garbled": True}, "failed"),
    ],
)
def test_what_one_answer_says(fields: dict[str, Any], outcome: str) -> None:
    assert outcome_of(good(1, **fields)) == outcome


@pytest.mark.parametrize(
    ("fields", "proof"),
    [
        ({}, "proved"),
        ({"external_tokens": 0}, "no"),
        ({"external_tokens": None}, "routed"),
        ({"external_tokens": None, "prefill": ""}, "not-seen"),
    ],
)
def test_a_named_prefill_pod_is_not_yet_a_transfer(fields: dict[str, Any], proof: str) -> None:
    assert disaggregation_of(good(1, **fields)) == proof


def test_warm_up_is_thrown_away_even_if_it_failed() -> None:
    cold = [good(100 + number, warmup=True, status=500) for number in range(6)]
    verdict = judge([*cold, *series()])
    assert (verdict.verdict, verdict.warmups, verdict.judged) == ("green", 6, 24)
    assert not set(verdict.served) & {probe.number for probe in cold}


def test_flow_control_takes_the_verdict_away_and_is_never_red() -> None:
    busy = series(status=429, dropped_reason="rejected-saturated")
    verdict = judge(busy)
    assert (verdict.verdict, verdict.reason, verdict.without_verdict) == (
        "not-evaluable",
        "too-few-probes",
        24,
    )
    assert "flow control turned 24 away" in verdict.sentence
    some = [*series(), *[replace(each, number=each.number + 50) for each in busy[:10]]]
    assert judge(some).verdict == "green"


def test_http_200_alone_is_never_green() -> None:
    assert judge(series(output_tokens=None)).verdict == "not-evaluable"
    assert judge(series(external_tokens=None)).reason == "disaggregation-not-proved"
    assert judge(series(external_tokens=None, prefill="")).reason == "disaggregation-not-proved"


def test_a_decode_engine_that_read_all_its_prompts_proves_those_routed_to_it() -> None:
    routed = series(external_tokens=None)
    counters = {name: GroupCounters(failed_transfers=0, external_tokens=12 * 592) for name in ("d-0", "d-1")}
    assert judge(routed, around=Surroundings(counters=counters)).verdict == "green"
    failing = {name: replace(each, failed_transfers=1) for name, each in counters.items()}
    assert judge(routed, around=Surroundings(counters=failing)).reason == "disaggregation-not-proved"
    half = {name: replace(each, external_tokens=6 * 592) for name, each in counters.items()}
    assert judge(routed, around=Surroundings(counters=half)).reason == "disaggregation-not-proved"


def test_a_group_that_did_not_serve_is_named() -> None:
    verdict = judge([good(number, decode="d-0") for number in range(24)])
    assert (verdict.verdict, verdict.reason) == ("not-evaluable", "coverage")
    assert verdict.missing == (GROUPS[3],)
    assert verdict.sentence == "Not seen to serve: d-1 (decode)."


def test_counters_cover_groups_only_where_answers_name_none() -> None:
    """Else a group that only clients used would count as probed."""
    counters = {group.id: GroupCounters(requests=12, error_finishes=0) for group in GROUPS}
    around = Surroundings(counters=counters)
    blind = series(prefill="", decode="")
    assert [each.seen_by for each in judge(blind, around=around).coverage] == ["counters"] * 4
    named = [good(number, decode="d-0") for number in range(24)]
    assert judge(named, around=around).missing == (GROUPS[3],)


def test_what_served_is_not_seen_where_nothing_says_it() -> None:
    verdict = judge(series(stamped="", decode=""))
    assert set(verdict.served.values()) == {"not seen"}
    by_group = judge(series(stamped=""))
    assert set(by_group.served.values()) == {NEW}


def test_a_broken_group_is_red_and_the_finding_is_the_verdict() -> None:
    verdict = judge([good(number, status=500 if number % 2 else 200) for number in range(24)])
    assert (verdict.verdict, verdict.reason) == ("red", "faulty-group")
    assert findings(verdict) == {"faulty-group": "faulty-part"}
    assert verdict.findings[0].parts == ("p-1",)
    assert not verdict.doubts


def test_an_unsupported_pair_is_red_and_is_not_called_a_fault() -> None:
    old = [Group("old-p", "prefill", OLD), Group("old-d", "decode", OLD)]
    mixed = [
        good(
            number,
            prefill="old-p" if number % 3 == 0 else f"p-{number % 2}",
            status=500 if number % 3 == 0 else 200,
        )
        for number in range(48)
    ]
    own = [
        good(100 + number, asked=OLD, stamped=OLD, prefill="old-p", decode="old-d") for number in range(10)
    ]
    verdict = judge([*mixed, *own], others=old)
    assert findings(verdict) == {"revisions-do-not-fit": "unsupported-pair"}
    assert verdict.findings[0].parts == (OLD, NEW)


def test_failures_that_follow_nothing_are_red_when_they_are_too_many() -> None:
    scattered = [good(number, status=500 if number in (3, 8, 21, 30) else 200) for number in range(48)]
    assert judge(scattered).reason == "failures"
    assert (
        judge([good(number, status=500 if number == 3 else 200) for number in range(60)]).verdict == "green"
    )


def test_a_series_that_fails_from_the_start_is_red_before_it_is_long() -> None:
    verdict = judge(series(4, status=None, stamped="", prefill="", decode=""))
    assert (verdict.verdict, verdict.reason) == ("red", "failures")
    assert judge(series(2, status=None)).verdict == "not-evaluable"


@pytest.mark.parametrize(
    ("fields", "finding"),
    [
        ({"stamped": OLD}, "pin-ignored"),
        ({"status": 503, "dropped_reason": "rejected-no-endpoints"}, "pin-not-matched"),
        ({"status": 401}, "probe-refused"),
        ({"external_tokens": 0, "prefill": ""}, "not-disaggregated"),
    ],
)
def test_probes_that_do_not_test_the_path_say_why(fields: dict[str, Any], finding: str) -> None:
    verdict = judge(series(**fields))
    assert (verdict.verdict, verdict.reason) == ("not-evaluable", finding)
    assert findings(verdict)[finding] == "wrong-setting"


COUNTED = {
    "p-0": GroupCounters(expired_leases=0, late_notifications=0),
    "d-0": GroupCounters(failed_transfers=0),
}


@pytest.mark.parametrize(
    ("around", "finding"),
    [
        ({"p-0": {"expired_leases": 3.0, "late_notifications": 2.0}}, "short-lease"),
        ({"p-0": {"expired_leases": 3.0, "late_notifications": None}}, "short-lease"),
        (
            {"d-0": {"failed_transfers": 4.0, "local_tokens": 2_400.0, "error_finishes": 0.0}},
            "failures-hidden",
        ),
    ],
)
def test_counters_show_wrong_settings_that_answers_hide(
    around: dict[str, dict[str, Any]], finding: str
) -> None:
    counters = {name: replace(each, **around.get(name, {})) for name, each in COUNTED.items()}
    verdict = judge(series(), around=Surroundings(counters=counters, lease_s=30))
    assert (verdict.verdict, verdict.reason) == ("red", finding)
    assert findings(verdict) == {finding: "wrong-setting"}


def test_expired_leases_beside_failed_transfers_are_no_short_lease() -> None:
    """They are what an incompatible pair leaves behind one lease later."""
    counters = {"p-0": GroupCounters(expired_leases=3.0), "d-0": GroupCounters(failed_transfers=3.0)}
    assert "short-lease" not in findings(judge(series(), around=Surroundings(counters=counters)))


def test_expired_leases_beside_failed_probes_are_no_short_lease() -> None:
    """A prefill group that answers with an error after its work keeps what nobody comes to read."""
    failing = [good(number, status=500 if number % 3 == 0 else 200) for number in range(24)]
    around = Surroundings(counters={"p-0": GroupCounters(expired_leases=3.0)})
    assert "short-lease" not in findings(judge(failing, around=around))
    read = Surroundings(counters={"p-0": GroupCounters(expired_leases=3.0, late_notifications=1.0)})
    assert "short-lease" in findings(judge(failing, around=read)), "read after the lease is proof"


UNREAD = {
    **{name: GroupCounters(requests=12, error_finishes=0) for name in ("p-0", "p-1")},
    **{name: GroupCounters(transfers=0, failed_transfers=12, error_finishes=12) for name in ("d-0", "d-1")},
}


def test_a_pair_is_told_where_most_answers_name_no_prefill_group() -> None:
    """Through the gateway nobody does; a stamp that is the pin says the revision of both halves."""
    gateway = [good(number, status=500, prefill="") for number in range(24)]
    direct = [good(number, status=500, stamped="") for number in range(24, 28)]
    verdict = judge([*gateway, *direct], around=Surroundings(counters=UNREAD))
    assert findings(verdict) == {"halves-do-not-fit": "unsupported-pair"}
    alone = judge(gateway, around=Surroundings(counters=UNREAD))
    assert findings(alone) == {} and alone.verdict == "red", "no pair of groups was seen to meet"


def test_a_broken_prefill_group_is_told_where_the_gateway_names_none() -> None:
    gateway = [good(number, status=500 if number % 4 == 0 else 200, prefill="") for number in range(24)]
    direct = [
        good(number, status=500 if number % 2 else 200, prefill=f"p-{number % 2}") for number in range(24, 40)
    ]
    verdict = judge([*gateway, *direct])
    assert findings(verdict) == {"faulty-group": "faulty-part"} and verdict.findings[0].parts == ("p-1",)


def test_the_routers_own_decisions_show_that_it_does_not_disaggregate() -> None:
    around = Surroundings(decisions={"decode-only": 24.0, "prefill-decode": 0.0})
    assert "not-disaggregated" in findings(judge(series(external_tokens=None, prefill=""), around=around))
    mixed = Surroundings(decisions={"decode-only": 24.0, "prefill-decode": 24.0})
    assert "not-disaggregated" not in findings(judge(series(), around=mixed))


def test_an_open_guard_is_told_and_takes_nothing_away() -> None:
    verdict = judge(series(), around=Surroundings(guard="open"))
    assert verdict.verdict == "green"
    assert findings(verdict) == {"guard-open": "wrong-setting"}


def test_halves_of_one_revision_are_told_apart_by_their_counters() -> None:
    counters = {
        "p-0": GroupCounters(requests=12, error_finishes=0),
        "p-1": GroupCounters(requests=12, error_finishes=0),
        "d-0": GroupCounters(transfers=0, failed_transfers=12, error_finishes=12),
        "d-1": GroupCounters(transfers=0, failed_transfers=12, error_finishes=12),
    }
    broken = series(status=500)
    assert judge(broken, around=Surroundings(counters=counters)).reason == "halves-do-not-fit"
    assert judge(broken).reason == "failures"


def test_probes_become_a_gate() -> None:
    gate = next(gate for gate in default_gates("production") if gate.id == "probe-success")
    assert judge_gate(gate, measure_probes(judge(series()), age_s=60.0, revision=NEW)).verdict == "green"
    broken = judge([good(number, status=500 if number % 2 else 200) for number in range(24)])
    red = judge_gate(gate, measure_probes(broken, age_s=60.0))
    assert (red.verdict, red.reason, red.sentence) == ("red", "finding", broken.sentence)
    thin = judge_gate(gate, measure_probes(judge(series(5)), age_s=60.0))
    assert (thin.verdict, thin.sentence) == ("not-evaluable", "Probes: 5 of 20 probes that a verdict needs.")
    assert judge_gate(gate, measure_probes(judge([]), age_s=60.0)).reason == "no-traffic"
    assert judge_gate(gate, measure_probes(judge(series()), age_s=9_000.0)).reason == "stale"
