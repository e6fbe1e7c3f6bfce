from __future__ import annotations

import pytest

from policy.gates import HISTORIES, Measurement, default_gates, judge_gate, judge_gates

ENVIRONMENTS = ("production", "staging", "development")
COVERED = {
    "error-ratio", "ttft", "failed-transfers", "expired-leases", "disaggregated-share", "decode-only-share",
    "probe-success", "parity", "kv-usage", "queue", "restarts",
}  # fmt: skip


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_every_environment_looks_at_everything_once(environment: str) -> None:
    gates = default_gates(environment)  # type: ignore[arg-type]
    assert {gate.id for gate in gates} == COVERED
    assert len(gates) == len(COVERED)


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_no_environment_goes_on_without_transfers_probes_and_parity(environment: str) -> None:
    required = {gate.id for gate in default_gates(environment) if gate.required}  # type: ignore[arg-type]
    assert required >= {"failed-transfers", "probe-success", "parity"}


def test_production_requires_everything_and_the_others_less() -> None:
    counts = [sum(gate.required for gate in default_gates(each)) for each in ENVIRONMENTS]  # type: ignore[arg-type]
    assert counts[0] == len(COVERED) > counts[1] > counts[2]
    for strict, loose in zip(default_gates("production"), default_gates("development"), strict=True):
        assert loose.minimum_samples <= strict.minimum_samples


def test_metrics_with_a_history_are_asked_for_by_their_names() -> None:
    assert {history.metric for history in HISTORIES} <= {gate.metric for gate in default_gates("production")}


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_silence_is_never_green(environment: str) -> None:
    judgements = [judge_gate(gate, Measurement("no-data")) for gate in default_gates(environment)]  # type: ignore[arg-type]
    assert judge_gates(judgements).verdict == "not-evaluable"


def test_a_healthy_revision_is_green_in_production() -> None:
    good = {"ttft": 0.36, "disaggregated-share": 0.94, "decode-only-share": 0.06, "probe-success": 1.0}
    judgements = []
    for gate in default_gates("production"):
        value = good.get(gate.id, 0.0)
        base = Measurement("value", value, 20_000, 5.0, engine="vllm", version="0.33.0")
        seen = Measurement("value", value, 20_000, 5.0, engine="vllm", version="0.33.0", baseline=base)
        judgements.append(judge_gate(gate, seen))
    overall = judge_gates(judgements)
    assert overall.verdict == "green"
    assert overall.sentence == "11 of 11 required gates are green."
