"""What came back from probes, and what counters and settings say beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

FindingKind: TypeAlias = Literal["faulty-part", "unsupported-pair", "wrong-setting"]
# What a finding does to the verdict: it is red, or it takes the verdict away, or it is only told.
Effect: TypeAlias = Literal["red", "no-verdict", "note"]
Disaggregation: TypeAlias = Literal["proved", "routed", "no", "not-seen"]


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """One probe's answer.

    `asked` is the revision that its header named. `status` is None where no answer came. `dropped_reason` is the
    router's header on refusals, `stamped` the revision it stamped on the answer. `decode` and `prefill` are ids of
    the groups that did the two halves, where the answer, an echo or a trace says so. `external_tokens` are prompt
    tokens that came through the KV transfer. `output_tokens` is None where nobody looked at the answer's content;
    `garbled` says that the content is no answer. `detail` is for people.
    `direct`: it was sent to the engines as the routing sidecar would, not through the gateway. It says who is at fault
    and that a group can serve, and counts for nothing else.
    """

    number: int
    asked: str = ""
    warmup: bool = False
    status: int | None = 200
    dropped_reason: str = ""
    stamped: str = ""
    decode: str = ""
    prefill: str = ""
    prompt_tokens: int | None = None
    external_tokens: int | None = None
    output_tokens: int | None = None
    garbled: bool = False
    detail: str = ""
    direct: bool = False


@dataclass(frozen=True, slots=True)
class GroupCounters:
    """What a group's engine counted while the probes ran (increase over their window); None: not exposed."""

    requests: float | None = None
    transfers: float | None = None
    failed_transfers: float | None = None
    expired_leases: float | None = None
    late_notifications: float | None = None
    external_tokens: float | None = None
    local_tokens: float | None = None
    error_finishes: float | None = None
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known beside the results.

    `counters` by group id. `decisions` are the router's by type, `lease_s` the KV lease of the engines,
    `guard` the verdict about the header guard. `alone` are ids of groups that answered a request without any peer:
    a prefill with one token, a decode that was asked directly.
    """

    counters: Mapping[str, GroupCounters] = field(default_factory=dict)
    decisions: Mapping[str, float] | None = None
    lease_s: float | None = None
    guard: str = ""
    alone: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found. `id` is stable and kebab-case; `parts` name what it concerns, most of it first."""

    kind: FindingKind
    id: str
    effect: Effect
    parts: tuple[str, ...]
    sentence: str
    next_action: str
