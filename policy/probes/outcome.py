"""What one result says by itself."""

from __future__ import annotations

from typing import Literal, TypeAlias

from policy.probes.facts import Disaggregation, ProbeResult

# no-verdict: nothing about the path. refused: the probe itself is wrong (credentials, address, body).
Outcome: TypeAlias = Literal["warm-up", "ok", "failed", "no-verdict", "refused"]

_FLOW_CONTROL = (429, 503)


def outcome_of(result: ProbeResult) -> Outcome:
    """A probe that flow control turned away says nothing; HTTP 200 whose content nobody looked at neither.

    429 is a limit wherever it comes from. 503 is a refusal of flow control only with the router's reason on it;
    without one the gateway found nobody to answer, which is a failure.
    """
    if result.warmup:
        return "warm-up"
    if result.status == 429 or (result.status in _FLOW_CONTROL and result.dropped_reason):
        return "no-verdict"
    if result.status is None or result.status >= 500 or result.status == 408:
        return "failed"
    if result.status >= 300:
        return "refused"
    if result.garbled or result.output_tokens == 0:
        return "failed"
    return "ok" if result.output_tokens else "no-verdict"


def disaggregation_of(result: ProbeResult) -> Disaggregation:
    """Proved by prompt tokens that came through the transfer. A named prefill pod shows the router's will alone:

    an engine that may recompute answers as well when the transfer failed.
    """
    if result.external_tokens is not None:
        return "proved" if result.external_tokens > 0 else "no"
    return "routed" if result.prefill else "not-seen"
