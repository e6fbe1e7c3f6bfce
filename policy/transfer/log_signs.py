"""Pieces of text in engine logs that belong to KV transfer (research/telemetry.md 3.6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Role = Literal["prefill", "decode", "either"]


@dataclass(frozen=True, slots=True)
class LogFragment:
    """A piece of text in an engine's log, what it means, and the situations it belongs to."""

    text: str
    role: Role
    engine: str
    meaning: str
    situations: tuple[str, ...]


_FAILURE_TYPES: Sequence[tuple[str, str, tuple[str, ...]]] = (
    ("handshake_setup_failed", "the peer could not be reached for the handshake", ("prefill-unreachable",)),
    ("handshake_failed", "the handshake was refused or broke off", ("pair-refused", "stale-agent")),
    ("transfer_setup_failed", "a transfer could not be prepared", ("stale-agent",)),
    ("transfer_failed", "a transfer ended with an error", ("stale-agent",)),
    ("transfer_exception", "a transfer raised an error", ("stale-agent",)),
    ("transfer_release_failed", "a finished transfer could not be released", ()),
    ("notification_failed", "prefill could not be told that its blocks are free", ("lease-too-short",)),
    ("push_handshake_failed", "the handshake of a push failed", ("pair-refused", "stale-agent")),
    ("push_reg_handshake_failed", "the registration of a push failed", ("pair-refused", "stale-agent")),
    ("push_reg_notif_failed", "the notice of a push registration failed", ("stale-agent",)),
)

LOG_FRAGMENTS: tuple[LogFragment, ...] = (
    LogFragment(
        "NIXL compatibility hash mismatch", "decode", "vllm", "a hashed factor differs", ("pair-refused",)
    ),
    LogFragment(
        "Failed to decode NixlHandshakePayload",
        "decode",
        "vllm",
        "the peer speaks another protocol",
        ("pair-refused",),
    ),
    LogFragment(
        "engine ID mismatch", "decode", "vllm", "another engine stands behind the address", ("stale-agent",)
    ),
    *(
        LogFragment(f"NIXL transfer failure: {kind}", "decode", "vllm", meaning, situations)
        for kind, meaning, situations in _FAILURE_TYPES
    ),
    LogFragment(
        "due to KV load failure", "decode", "vllm", "a request failed for want of its KV", ("pair-refused",)
    ),
    LogFragment(
        "Releasing expired KV blocks",
        "prefill",
        "vllm",
        "nobody fetched the KV in time",
        ("lease-too-short", "pair-refused"),
    ),
    LogFragment(
        "Potentially invalid KV blocks",
        "prefill",
        "vllm",
        "decode read memory that was already used again; the client got HTTP 200 all the same",
        ("lease-too-short",),
    ),
    LogFragment("NIXL_ERR_BACKEND", "either", "vllm", "the transport reported an error", ("stale-agent",)),
    LogFragment(
        "NIXL_ERR_NOT_FOUND", "either", "vllm", "the peer or its memory is not known", ("stale-agent",)
    ),
    LogFragment(
        "NIXL_ERR_REMOTE_DISCONNECT", "either", "vllm", "the peer went away", ("prefill-unreachable",)
    ),
    LogFragment("NIXL_ERR_MISMATCH", "either", "vllm", "the two descriptions do not fit", ("block-sizes",)),
    LogFragment(
        "is not divisible by remote block size", "decode", "vllm", "block sizes do not fit", ("block-sizes",)
    ),
    LogFragment("KV cache sizes must match", "decode", "vllm", "regions differ in size", ("block-sizes",)),
    LogFragment("expects same kv_cache_layout", "decode", "vllm", "layouts differ", ("block-sizes",)),
    LogFragment("Page size mismatch", "decode", "sglang", "page sizes differ", ("sglang-refused",)),
    LogFragment("KV cache dtype mismatch", "decode", "sglang", "KV cache dtypes differ", ("sglang-refused",)),
    LogFragment("KV layout mismatch", "decode", "sglang", "KV layouts differ", ("sglang-refused",)),
)


def match_log(line: str) -> tuple[LogFragment, ...]:
    """The known fragments in a log line."""
    return tuple(each for each in LOG_FRAGMENTS if each.text in line)
