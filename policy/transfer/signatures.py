"""What logs and counters say about a path that does not move KV as it should (research/telemetry.md 3.6, 3.7).

A situation is returned where all that it demands was seen and nothing contradicts it. Several can fit the
same signs, and then all are returned; where none fits, none is. A mix of weights shows in no sign at all. The
texts are those of `log_signs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from policy.transfer.factors import Release, release_of

Fault = Literal["unsupported-pair", "faulty-part", "wrong-setting", "load", "not-disaggregating"]

XFER_COUNT = "vllm:nixl_xfer_time_seconds_count"
XFER_SUM = "vllm:nixl_xfer_time_seconds_sum"
POST_SUM = "vllm:nixl_post_time_seconds_sum"
BYTES_SUM = "vllm:nixl_bytes_transferred_sum"
DESCRIPTORS_SUM = "vllm:nixl_num_descriptors_sum"
FAILED = "vllm:nixl_num_failed_transfers_total"
EXPIRED = "vllm:nixl_num_kv_expired_reqs_total"
LATE_NOTICES = "vllm:nixl_num_notifications_after_expiry_total"
ERRORS = 'vllm:request_success_total{finished_reason="error"}'
REQUESTS = "vllm:e2e_request_latency_seconds_count"
LOCAL_COMPUTE = 'vllm:prompt_tokens_by_source_total{source="local_compute"}'
EXTERNAL = 'vllm:prompt_tokens_by_source_total{source="external_kv_transfer"}'
DEFERRED = 'vllm:num_requests_waiting_by_reason{reason="deferred"}'
WAITING_TO_START = 'vllm:num_requests_kv_fetch_by_stage{stage="waiting_to_start"}'
RESTARTS = "restarts"

# Releases before this one do not count a failed handshake (1.3): an incompatible pair reads as no failure.
HANDSHAKES_COUNTED_SINCE: Release = (0, 23)
# Up to this release decode computes one token of each prompt itself (1.4).
ONE_TOKEN_COMPUTED_UNTIL: Release = (0, 20)
SLOW_RATE = 1.2e9
MANY_DESCRIPTORS = 10_000


@dataclass(frozen=True, slots=True)
class Signs:
    """What was seen over one window.

    `prefill` and `decode` hold the increase of each counter, summed over the pods of the role, by the names
    of this module; gauges hold their change, and `restarts` the engines that started anew. An absent name was
    not seen, which is not zero. `decode_pods` holds the increases of single pods. `decode_only_share` is the
    router's share of requests without prefill.
    """

    prefill: Mapping[str, float] = field(default_factory=dict)
    decode: Mapping[str, float] = field(default_factory=dict)
    decode_pods: tuple[Mapping[str, float], ...] = ()
    version: str | None = None
    decode_only_share: float | None = None
    log_lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """A situation that fits. `seen` are the signs for it, `unseen` those that would make it surer."""

    id: str
    fault: Fault
    sentence: str
    next_action: str
    seen: tuple[str, ...]
    unseen: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sign:
    """One condition over signs: true, false, or None where it was not seen. `needed` must be true."""

    label: str
    holds: Callable[[Signs], bool | None]
    needed: bool = True


@dataclass(frozen=True, slots=True)
class Situation:
    """One row of the table. `proof` are log fragments of which one is enough, whatever the counters say."""

    id: str
    fault: Fault
    sentence: str
    next_action: str
    signs: tuple[Sign, ...]
    proof: tuple[str, ...] = ()


def explain(signs: Signs) -> tuple[Explanation, ...]:
    """All situations that fit, in the order of the table."""
    found = (_fit(each, signs) for each in SITUATIONS)
    return tuple(each for each in found if each is not None)


def _fit(situation: Situation, signs: Signs) -> Explanation | None:
    logged = tuple(text for text in situation.proof if any(text in line for line in signs.log_lines))
    read = [(sign, sign.holds(signs)) for sign in situation.signs]
    if not logged:
        if not situation.signs or any(state is not True for sign, state in read if sign.needed):
            return None
        if any(state is False for _, state in read):
            return None
    seen = (*(f'log: "{text}"' for text in logged), *(sign.label for sign, state in read if state is True))
    unseen = tuple(sign.label for sign, state in read if state is None)
    return Explanation(situation.id, situation.fault, situation.sentence, situation.next_action, seen, unseen)


def _up(role: Literal["prefill", "decode"], name: str) -> Callable[[Signs], bool | None]:
    def holds(signs: Signs) -> bool | None:
        change = getattr(signs, role).get(name)
        return None if change is None else change > 0

    return holds


def _flat(role: Literal["prefill", "decode"], name: str) -> Callable[[Signs], bool | None]:
    def holds(signs: Signs) -> bool | None:
        change = getattr(signs, role).get(name)
        return None if change is None else change == 0

    return holds


def _ratio(signs: Signs, over: str, under: str) -> float | None:
    top, bottom = signs.decode.get(over), signs.decode.get(under)
    return None if top is None or not bottom or bottom < 0 else top / bottom


def _failures_counted(signs: Signs) -> bool | None:
    """Failed transfers grew. Releases that do not count failed handshakes say nothing by a zero."""
    failed = signs.decode.get(FAILED)
    if failed is None:
        return None
    release = release_of(signs.version)
    if failed == 0 and (release is None or release < HANDSHAKES_COUNTED_SINCE):
        return None
    return failed > 0


def _some_pods_only(signs: Signs) -> bool | None:
    failed = [pod.get(FAILED) for pod in signs.decode_pods]
    seen = [each for each in failed if each is not None]
    if len(seen) < 2:
        return None
    return any(each > 0 for each in seen) and any(each == 0 for each in seen)


def _slow(signs: Signs) -> bool | None:
    rate = _ratio(signs, BYTES_SUM, XFER_SUM)
    return None if rate is None else 0 < rate <= SLOW_RATE


def _posting(signs: Signs) -> bool | None:
    share = _ratio(signs, POST_SUM, XFER_SUM)
    return None if share is None else share > 0.5


def _many_descriptors(signs: Signs) -> bool | None:
    mean = _ratio(signs, DESCRIPTORS_SUM, XFER_COUNT)
    return None if mean is None else mean >= MANY_DESCRIPTORS


def _all_computed(signs: Signs) -> bool | None:
    """Decode computed its prompts and fetched none. Old releases compute one token of a fetched prompt."""
    local, external = signs.decode.get(LOCAL_COMPUTE), signs.decode.get(EXTERNAL)
    if local is None or external is None:
        return None
    return local > 0 and external == 0


def _computes_more(signs: Signs) -> bool | None:
    local, requests = signs.decode.get(LOCAL_COMPUTE), signs.decode.get(REQUESTS)
    if local is None:
        return None
    release = release_of(signs.version)
    if release is None or release <= ONE_TOKEN_COMPUTED_UNTIL:
        return local > requests if requests is not None else None
    return local > 0


def _router_decodes_only(signs: Signs) -> bool | None:
    share = signs.decode_only_share
    return None if share is None else share >= 0.9


def _refusals(signs: Signs) -> bool | None:
    """Failures that were counted; in releases that do not count them, leases that nobody used."""
    counted = _failures_counted(signs)
    if counted is not None:
        return counted
    return True if signs.prefill.get(EXPIRED, 0) > 0 else None


def _no_failures(signs: Signs) -> bool | None:
    counted = _failures_counted(signs)
    return None if counted is None else not counted


def _noted(holds: Callable[[Signs], bool | None]) -> Callable[[Signs], bool | None]:
    """A sign that speaks for a situation where it is there, and not against it where it is not."""
    return lambda signs: True if holds(signs) else None


_FLAT_TRANSFERS = Sign("no transfer ended on decode", _flat("decode", XFER_COUNT))
_FAILURES = Sign("failed transfers grew on decode", _failures_counted)

SITUATIONS: tuple[Situation, ...] = (
    Situation(
        "pair-refused",
        "unsupported-pair",
        "Decode refuses what prefill offers, and requests end with errors.",
        "Look at the transfer verdict of the two revisions and keep them apart in the router.",
        (
            Sign("failed transfers grew on decode, or leases expired on prefill", _refusals),
            _FLAT_TRANSFERS,
            Sign("requests ended with errors on decode", _up("decode", ERRORS)),
        ),
        ("NIXL compatibility hash mismatch", "Failed to decode NixlHandshakePayload"),
    ),
    Situation(
        "pair-refused-recomputed",
        "unsupported-pair",
        "Decode refuses what prefill offers and computes the prompts itself: slow, without errors.",
        "Look at the transfer verdict of the two revisions; kv_load_failure_policy recompute hides the refusals.",
        (
            _FAILURES,
            _FLAT_TRANSFERS,
            Sign("decode computes prompts", _computes_more),
            Sign("no errors on decode", _flat("decode", ERRORS)),
        ),
    ),
    Situation(
        "prefill-unreachable",
        "faulty-part",
        "Decode cannot reach a prefill engine that the router still sends to.",
        "Look at the prefill pods and their side channel; restart the one that does not answer.",
        (
            _FAILURES,
            Sign("requests ended with errors on decode", _up("decode", ERRORS)),
            Sign("no lease expired on prefill", _flat("prefill", EXPIRED), needed=False),
            Sign("a prefill engine started anew", _noted(_up("prefill", RESTARTS)), needed=False),
        ),
        ("NIXL transfer failure: handshake_setup_failed", "NIXL_ERR_REMOTE_DISCONNECT"),
    ),
    Situation(
        "block-sizes",
        "unsupported-pair",
        "The block sizes or layouts of the two sides do not fit, and every request fails.",
        "Set the same --block-size and layout on both roles.",
        (),
        (
            "is not divisible by remote block size",
            "KV cache sizes must match",
            "expects same kv_cache_layout",
        ),
    ),
    Situation(
        "sglang-refused",
        "unsupported-pair",
        "SGLang's decode refuses its prefill: page size, KV cache dtype or layout differ.",
        "Set --page-size and --kv-cache-dtype alike on both roles.",
        (),
        ("Page size mismatch", "KV cache dtype mismatch", "KV layout mismatch"),
    ),
    Situation(
        "stale-agent",
        "faulty-part",
        "Some decode pods still hold the transfer agent of a prefill engine that was replaced.",
        "Restart the decode pods that fail; leave the others.",
        (
            Sign("failed transfers grew on some decode pods and on others not", _some_pods_only),
            Sign("a prefill engine started anew", _noted(_up("prefill", RESTARTS)), needed=False),
        ),
        ("engine ID mismatch",),
    ),
    Situation(
        "lease-too-short",
        "load",
        "Prefill gives up KV before decode fetches it: the lease is too short, or decode has too much to do.",
        "Raise kv_lease_duration, or give decode more room.",
        (
            Sign("leases expired on prefill", _up("prefill", EXPIRED)),
            Sign("requests wait on decode for their KV", _up("decode", DEFERRED), needed=False),
            Sign("KV fetches wait to start on decode", _up("decode", WAITING_TO_START), needed=False),
            Sign("transfers ended on decode", _up("decode", XFER_COUNT)),
            Sign("notices came after the lease", _up("prefill", LATE_NOTICES), needed=False),
        ),
        ("Potentially invalid KV blocks",),
    ),
    Situation(
        "slow-transport",
        "wrong-setting",
        "KV moves at about 1 GB/s or less: over TCP, or between pods of one node without RDMA.",
        "Ask for the RDMA resource on both roles and look at UCX_TLS.",
        (
            Sign("bytes per second of transfer are about 1 GB/s or less", _slow),
            Sign("no transfer failed", _flat("decode", FAILED), needed=False),
        ),
    ),
    Situation(
        "fragmented-blocks",
        "wrong-setting",
        "Transfers consist of very many small pieces, and more than half their time is handing them in.",
        "Use larger blocks.",
        (
            Sign("more than half the transfer time is posting", _posting),
            Sign("a transfer has very many descriptors", _many_descriptors),
        ),
    ),
    Situation(
        "not-disaggregating",
        "not-disaggregating",
        "Requests skip prefill: decode computes every prompt itself.",
        "Look at the router's decider and its threshold, and whether a prefill endpoint is ready.",
        (
            _FLAT_TRANSFERS,
            Sign("decode computes all its prompts", _all_computed),
            Sign("no transfer failed on decode", _no_failures, needed=False),
            Sign("the router sends to decode alone", _router_decodes_only, needed=False),
            Sign("prefill serves nothing", _flat("prefill", REQUESTS), needed=False),
        ),
    ),
)
