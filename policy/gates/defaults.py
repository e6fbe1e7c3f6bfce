"""Gates that an environment starts with. Every number is a default to be set by the pool's owners.

Error, timing and transfer gates use a window of ten minutes, as telemetry at scrape intervals of up to 30 s allows.
"""

from __future__ import annotations

from dataclasses import replace

from policy.approval.risk import Environment
from policy.gates.gate import Gate

_TEN_MINUTES = 600
_LOOK_AT_PATH = "Look at the probes' findings: a faulty part, an unsupported pair or a wrong setting."

PRODUCTION = (
    Gate(
        "error-ratio", "Errors", "error_ratio", "at-most", 0.002, "ratio", "http", _TEN_MINUTES, 1000, 60,
        when_red="Look at the error codes by pod, then abort.",
    ),
    Gate(
        "ttft", "TTFT p95", "ttft_p95", "at-most", 1.25, "seconds", "timing", _TEN_MINUTES, 300, 60,
        relative=True, slack=0.05,
        when_red="Compare queue, prefill and transfer times of both revisions.",
    ),
    Gate(
        "failed-transfers", "KV transfer failures", "failed_transfers_ratio", "at-most", 0.001, "ratio", "transfer",
        _TEN_MINUTES, 500, 60, when_red=_LOOK_AT_PATH,
    ),
    Gate(
        "expired-leases", "Expired KV leases", "expired_leases_ratio", "at-most", 0.001, "ratio", "transfer",
        _TEN_MINUTES, 500, 60,
        when_red="Raise kv_lease_duration, or give decode more room: prefill frees blocks before they are read.",
    ),
    Gate(
        "disaggregated-share", "Prompt tokens by KV transfer", "disaggregated_share", "at-least", 0.9, "ratio",
        "transfer", _TEN_MINUTES, 300, 60, relative=True, slack=0.02,
        when_red="Find out why decode computes prompts itself: failed loads, or no prefill pod picked.",
    ),
    Gate(
        "decode-only-share", "Requests that skip prefill", "decode_only_share", "at-most", 1.25, "ratio", "transfer",
        _TEN_MINUTES, 300, 60, relative=True, slack=0.02,
        when_red="Check the decider and the prefill profile of the router.",
    ),
    Gate(
        "probe-success", "Probes", "probe_success", "at-least", 0.98, "ratio", "output", 3600, 20, 1800,
        when_red=_LOOK_AT_PATH,
    ),
    Gate(
        "parity", "Output parity", "parity_bound", "at-most", 0.05, "ratio", "output", 3600, 20, 1800,
        when_red="Abort: the path changes what the model says.",
    ),
    Gate(
        "kv-usage", "KV cache in use", "kv_usage", "at-most", 0.9, "ratio", "capacity", _TEN_MINUTES, 10, 60,
        when_red="The set cannot grow while it is held: promote, or abort, or take load away.",
    ),
    Gate(
        "queue", "Waiting requests per decode group", "queue_per_group", "at-most", 4, "count", "capacity",
        _TEN_MINUTES, 10, 60,
        when_red="The set cannot grow while it is held: promote, or abort, or take load away.",
    ),
    Gate(
        "restarts", "Restarts of new groups", "restarts", "at-most", 0, "count", "stability", _TEN_MINUTES, 1, 60,
        when_red="Read the log of the container that ended.",
    ),
)  # fmt: skip

# Less traffic than production has: the same conditions over fewer samples, and times that only inform.
STAGING = tuple(
    replace(gate, minimum_samples=max(1, gate.minimum_samples // 5 if gate.evidence != "output" else 20),
            required=gate.evidence != "timing")
    for gate in PRODUCTION
)  # fmt: skip

# Almost no traffic: what probes bring must be right, everything else informs.
DEVELOPMENT = tuple(
    replace(gate, minimum_samples=min(gate.minimum_samples, 20),
            required=gate.id in {"failed-transfers", "probe-success", "parity", "restarts"})
    for gate in PRODUCTION
)  # fmt: skip

_BY_ENVIRONMENT: dict[Environment, tuple[Gate, ...]] = {
    "production": PRODUCTION,
    "staging": STAGING,
    "development": DEVELOPMENT,
}


def default_gates(environment: Environment) -> tuple[Gate, ...]:
    """The gates of an environment, required and advisory."""
    return _BY_ENVIRONMENT[environment]
