"""Wrong settings: what answers, counters and the router's decisions show beside failures.

Signatures of engines: vLLM with the NIXL connector, read in its code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from policy.probes.facts import Finding, GroupCounters, ProbeResult, Surroundings
from policy.probes.outcome import disaggregation_of, outcome_of
from policy.rollout.wording import count, listed
from policy.shares.measured import PREFILLED, SKIPPED


def settings_findings(
    results: Sequence[ProbeResult], around: Surroundings, roles: Mapping[str, str]
) -> Iterator[Finding]:
    """Findings of kind wrong-setting. `roles` are the groups' roles by id."""
    counted = [result for result in results if not result.warmup]
    yield from _pins(counted)
    yield from _refusals(counted)
    yield from _leases(counted, around, roles)
    yield from _hidden_failures(counted, around, roles)
    yield from _no_disaggregation(counted, around)
    if around.guard == "open":
        yield Finding(
            "wrong-setting",
            "guard-open",
            "note",
            (),
            "Clients can set the revision header themselves: the gateway does not strip it.",
            "Add the header guard to the route.",
        )


def _pins(results: Sequence[ProbeResult]) -> Iterator[Finding]:
    ignored = [each for each in results if each.asked and each.stamped and each.stamped != each.asked]
    if ignored:
        first = ignored[0]
        yield Finding(
            "wrong-setting",
            "pin-ignored",
            "no-verdict",
            (first.asked,),
            f"{count(len(ignored), 'probe')} asked for {first.asked} and were served by {first.stamped}: "
            "the revision header does not reach the router, or the router has no strict selector.",
            "Send probes through the listener that keeps the header; check the screener's headerSelectors.",
        )
    unknown = [each for each in results if each.asked and each.dropped_reason == "rejected-no-endpoints"]
    if unknown:
        revisions = sorted({each.asked for each in unknown})
        yield Finding(
            "wrong-setting",
            "pin-not-matched",
            "no-verdict",
            tuple(revisions),
            f"The router found no complete ready revision {listed(revisions)} for {count(len(unknown), 'probe')}.",
            "Check that every required role is ready, and that scope and pool select its pods.",
        )


def _refusals(results: Sequence[ProbeResult]) -> Iterator[Finding]:
    refused = [each for each in results if outcome_of(each) == "refused"]
    if refused:
        codes = sorted({str(each.status) for each in refused})
        yield Finding(
            "wrong-setting",
            "probe-refused",
            "no-verdict",
            tuple(codes),
            f"{count(len(refused), 'probe')} were refused with {listed(codes)}: the probe itself is wrong.",
            "Check the pool's credentials, the path and the model name of probes.",
        )


def _leases(
    results: Sequence[ProbeResult], around: Surroundings, roles: Mapping[str, str]
) -> Iterator[Finding]:
    """Expired leases with reads that came too late; or, where late reads are not counted, without any failure.

    Expired leases beside failed transfers are what an incompatible pair leaves behind, and beside failed probes what
    a prefill group does that answers with an error after its work: nobody comes to read.
    """
    expired = _moved(around, roles, "prefill", "expired_leases")
    late = _moved(around, roles, "prefill", "late_notifications")
    failed = _moved(around, roles, "decode", "failed_transfers")
    uncounted = all(each.late_notifications is None for each in around.counters.values())
    answered = all(outcome_of(each) != "failed" for each in results)
    if expired and (late or (uncounted and not failed and answered)):
        lease = "" if around.lease_s is None else f" of {around.lease_s:g} s"
        yield Finding(
            "wrong-setting",
            "short-lease",
            "red",
            tuple(expired),
            f"Prefill groups {listed(expired)} freed blocks before they were read: the KV lease{lease} is too short "
            "for the decode side, and what it reads then may belong to another request.",
            "Raise kv_lease_duration, or give decode more room.",
        )


def _hidden_failures(
    results: Sequence[ProbeResult], around: Surroundings, roles: Mapping[str, str]
) -> Iterator[Finding]:
    failed = _moved(around, roles, "decode", "failed_transfers")
    local = _moved(around, roles, "decode", "local_tokens")
    errors = _moved(around, roles, "decode", "error_finishes")
    answered = all(outcome_of(each) != "failed" for each in results)
    hidden = sorted(set(failed) & set(local))
    if hidden and not errors and answered:
        yield Finding(
            "wrong-setting",
            "failures-hidden",
            "red",
            tuple(hidden),
            f"Transfers to {listed(hidden)} fail and the prompts are computed again: kv_load_failure_policy is "
            "recompute, which answers as if nothing were wrong.",
            "Look for the failed transfers' cause in the engine's log; set kv_load_failure_policy to fail.",
        )


def _no_disaggregation(results: Sequence[ProbeResult], around: Surroundings) -> Iterator[Finding]:
    decisions = around.decisions or {}
    skipped = sum(decisions.get(name, 0.0) for name in SKIPPED)
    prefilled = sum(decisions.get(name, 0.0) for name in PREFILLED)
    served = [each for each in results if outcome_of(each) == "ok"]
    local = [each for each in served if disaggregation_of(each) == "no" and not each.prefill]
    if (skipped and not prefilled) or (served and len(local) == len(served)):
        yield Finding(
            "wrong-setting",
            "not-disaggregated",
            "no-verdict",
            (),
            "The router sends probes to decode pods alone, though they are longer than the decider asks for.",
            "Check the decider's nonCachedTokens, the prefill profile, and that prefill pods are in the pool.",
        )


def _moved(around: Surroundings, roles: Mapping[str, str], role: str, name: str) -> list[str]:
    """Groups of a role whose counter grew."""
    return sorted(
        group
        for group, counters in around.counters.items()
        if roles.get(group) == role and _grew(counters, name)
    )


def _grew(counters: GroupCounters, name: str) -> bool:
    value: float | None = getattr(counters, name)
    return value is not None and value > 0
