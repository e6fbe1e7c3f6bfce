from __future__ import annotations

from dataclasses import replace

import pytest

from policy.gates import Gate, Measurement, judge_gate
from policy.gates.versions import read_version

FAILED = Gate(
    "f", "KV transfer failures", "failed_transfers_ratio", "at-most", 0.001, "ratio", "transfer", 600, 10, 60
)
RELATIVE = replace(FAILED, relative=True, threshold=1.0, slack=0.001)
EXPIRED = replace(RELATIVE, metric="expired_leases_ratio")


def seen(version: str | None, value: float = 0.0, engine: str = "vllm") -> Measurement:
    return Measurement("value", value, 5_000, 1.0, engine=engine, version=version)


def against(gate: Gate, new: str | None, old: str | None) -> str:
    return judge_gate(gate, replace(seen(new), baseline=seen(old))).reason


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.33.0", (0, 33)),
        ("v0.30.0rc1", (0, 30)),
        ("0.33.0.dev4+g1a2b", (0, 33)),
        ("nightly", None),
        ("", None),
        (None, None),
    ],
)
def test_versions_are_read_from_what_engines_say(text: str | None, expected: tuple[int, int] | None) -> None:
    assert read_version(text) == expected


@pytest.mark.parametrize(
    ("new", "old", "reason"),
    [
        ("0.33.0", "0.33.1", "within-limit"),
        ("0.30.0", "0.23.0", "within-limit"),
        ("0.33.0", "0.30.1", "meaning-changed"),
        ("0.23.0", "0.20.0", "meaning-changed"),
        ("0.31.0", "0.31.0", "within-limit"),
        ("0.31.0", "0.30.0", "meaning-changed"),
        ("0.32.0", "0.31.0", "meaning-changed"),
        (None, "0.30.0", "meaning-changed"),
        (None, None, "meaning-changed"),
    ],
)
def test_failed_transfers_are_compared_only_where_they_mean_the_same(
    new: str | None, old: str | None, reason: str
) -> None:
    assert against(RELATIVE, new, old) == reason


def test_the_sentence_says_what_each_version_counts() -> None:
    judgement = judge_gate(RELATIVE, replace(seen("0.33.0"), baseline=seen("0.30.1")))
    assert "0.33.0 counts a failed handshake once, failed notifications too" in judgement.sentence
    assert "0.30.1 counts a failed handshake once per waiting request" in judgement.sentence


@pytest.mark.parametrize("version", ["0.20.0", "0.22.1", "0.17.0", None])
def test_no_failures_prove_nothing_where_handshakes_may_not_be_counted(version: str | None) -> None:
    judgement = judge_gate(FAILED, seen(version))
    assert (judgement.verdict, judgement.reason) == ("not-evaluable", "blind-version")
    assert judge_gate(FAILED, seen(version, 0.5)).verdict == "red"


@pytest.mark.parametrize("version", ["0.23.0", "0.30.1", "0.33.0"])
def test_no_failures_are_good_where_handshakes_are_counted(version: str) -> None:
    assert judge_gate(FAILED, seen(version)).verdict == "green"


def test_an_unknown_engine_is_taken_for_the_one_with_the_trap() -> None:
    assert judge_gate(FAILED, seen(None, engine="")).reason == "blind-version"
    assert judge_gate(FAILED, seen("0.5.23", engine="sglang")).verdict == "green"


def test_what_a_version_does_not_expose_is_said_and_not_taken_for_nothing() -> None:
    judgement = judge_gate(replace(FAILED, metric="expired_leases_ratio"), seen("0.14.0"))
    assert (judgement.verdict, judgement.reason) == ("not-evaluable", "not-exposed")
    assert "vllm 0.14.0 does not expose it" in judgement.sentence


def test_leases_of_minutes_and_of_seconds_are_not_compared() -> None:
    assert against(EXPIRED, "0.33.0", "0.23.0") == "within-limit"
    assert against(EXPIRED, "0.23.0", "0.20.0") == "meaning-changed"
