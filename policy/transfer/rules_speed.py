"""What makes a pair slow although it fits (research/telemetry.md 3.5 and 4.3)."""

from __future__ import annotations

from collections.abc import Iterator

from policy.transfer.connectors import read_connectors
from policy.transfer.facts import EngineFacts
from policy.transfer.findings import Finding, Shown, finding
from policy.transfer.pair import Pair, Ruling

_RDMA_WORDS = ("rc", "ib", "ud", "dc", "srd", "all")


def speed_rules(pair: Pair) -> Ruling:
    """RDMA on both sides, one fabric, and the slow way between pods of one node."""
    return Ruling((*_rdma(pair), *_fabric(pair), *_same_node(pair), *_unseen(pair)))


def _has_rdma(facts: EngineFacts) -> bool | None:
    """Whether the pod has a NIC for RDMA and the engine may use it."""
    transports = facts.arguments.env.get("UCX_TLS")
    if transports is not None and transports.value and _uses_ucx(facts):
        words = str(transports.value).lower().split(",")
        if not words[0].startswith("^") and not any(word.startswith(_RDMA_WORDS) for word in words):
            return False
    return facts.link.rdma


def _uses_ucx(facts: EngineFacts) -> bool:
    """Whether NIXL moves KV by UCX, its default; other backends do not read UCX's variables."""
    connector = read_connectors(facts.arguments).transfer
    backends = connector.extra.get("backends") if connector is not None else None
    return not isinstance(backends, list) or "UCX" in backends


def _shown(facts: EngineFacts) -> Shown:
    has = _has_rdma(facts)
    word = {True: "RDMA", False: "no RDMA", None: "not known"}[has]
    return Shown(word, "UCX_TLS" if facts.link.rdma and has is False else "resources of the pod")


def _rdma(pair: Pair) -> Iterator[Finding]:
    without = [
        side
        for side, facts in (("prefill", pair.prefill), ("decode", pair.decode))
        if _has_rdma(facts) is False
    ]
    if without:
        yield finding(
            "no-rdma",
            "transport",
            "slow",
            f"No RDMA on {' and '.join(without)}: KV goes over TCP, at about a tenth of the speed.",
            "Ask for the RDMA resource on both roles and let UCX_TLS allow it.",
            _shown(pair.prefill),
            _shown(pair.decode),
        )


def _fabric(pair: Pair) -> Iterator[Finding]:
    one, other = pair.prefill.link.fabric, pair.decode.link.fabric
    if one is not None and other is not None and one != other:
        yield finding(
            "fabric-differs",
            "fabric",
            "slow",
            f"The roles stand in two fabric domains: prefill in {one}, decode in {other}.",
            "Place both roles in one domain.",
            Shown(one, "node labels"),
            Shown(other, "node labels"),
        )


def _same_node(pair: Pair) -> Iterator[Finding]:
    shared = pair.prefill.link.nodes & pair.decode.link.nodes
    without = _has_rdma(pair.prefill) is False or _has_rdma(pair.decode) is False
    if shared and without and pair.pulls:
        yield finding(
            "cuda-ipc-pull",
            "transport",
            "slow",
            f"Both roles have pods on {', '.join(sorted(shared))} without RDMA: reads there run at about 0.5 GB/s.",
            "Use RDMA on one node too, or the push connector.",
            _shown(pair.prefill),
            _shown(pair.decode),
        )


def _unseen(pair: Pair) -> Iterator[Finding]:
    if _has_rdma(pair.prefill) is None or _has_rdma(pair.decode) is None:
        yield finding(
            "transport-unseen",
            "transport",
            None,
            "Whether both roles have RDMA is not known, so nothing is said about speed.",
            "Compare the measured transfer time with the expected one.",
            _shown(pair.prefill),
            _shown(pair.decode),
        )
