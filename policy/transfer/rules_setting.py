"""Settings of one side that keep a pair from working, or that a person should know of (3.3, 3.4)."""

from __future__ import annotations

from collections.abc import Iterator

from policy.transfer import factors
from policy.transfer.connectors import Connector
from policy.transfer.facts import EngineFacts
from policy.transfer.findings import Finding, MissingFact, Shown, finding
from policy.transfer.pair import Pair, Ruling, join, unread
from policy.transfer.values import whole

_HOST = "VLLM_NIXL_SIDE_CHANNEL_HOST"
_LOCAL = frozenset({"", "localhost", "127.0.0.1", "::1"})
_WRONG_ROLE = {"prefill": "kv_consumer", "decode": "kv_producer"}


def setting_rules(pair: Pair) -> Ruling:
    """Roles, the side channel, policies, lengths, and files or scripts that may set more."""
    return join(
        [
            Ruling(tuple(_roles(pair))),
            _side_channel(pair),
            Ruling(tuple(_policy(pair))),
            Ruling(tuple(_lengths(pair))),
            Ruling((), tuple(_unread(pair))),
        ]
    )


def _sides(pair: Pair) -> tuple[tuple[str, EngineFacts], tuple[str, EngineFacts]]:
    return ("prefill", pair.prefill), ("decode", pair.decode)


def _roles(pair: Pair) -> Iterator[Finding]:
    if pair.transfer is None:
        return
    shown = [Shown(each.role or "not given", each.source) for each in pair.transfer]
    for side, connector in zip(("prefill", "decode"), pair.transfer, strict=True):
        if connector.role == _WRONG_ROLE[side]:
            yield finding(
                f"{side}-role-wrong",
                "kv_role",
                "incompatible",
                f"The {side} engine is set up as {connector.role}, which is the other role.",
                f"Set kv_role to {_WRONG_ROLE['decode' if side == 'prefill' else 'prefill']} on {side}.",
                *shown,
            )
    if "kv_both" in [each.role for each in pair.transfer] and pair.family == "nixl":
        yield finding(
            "role-both",
            "kv_role",
            None,
            "kv_role is kv_both, which NIXL accepts with a warning and will drop.",
            "Set kv_producer on prefill and kv_consumer on decode.",
            *shown,
        )


def _side_channel(pair: Pair) -> Ruling:
    """The address that a NIXL engine tells its peers; its default is the pod itself."""
    if pair.family != "nixl":
        return Ruling()
    telling = [pair.prefill] if pair.pulls else [pair.prefill, pair.decode]
    found, missing = [], []
    for side, facts in _sides(pair):
        if facts not in telling or facts.arguments.launcher.startswith("dynamo."):
            continue
        hidden, given = facts.arguments.hidden(_HOST), facts.arguments.env.get(_HOST)
        if hidden is not None:
            missing.append(MissingFact("prefill" if side == "prefill" else "decode", _HOST, _HOST, hidden))
        elif given is None or str(given.value).strip() in _LOCAL:
            found.append(
                _local(side, str(given.value) if given else "not given", given.source if given else "no env")
            )
    return Ruling(tuple(found), () if pair.same.identical else tuple(missing))


def _local(side: str, value: str, source: str) -> Finding:
    shown = Shown(value, source)
    nothing = Shown("", "")
    return finding(
        f"{side}-side-channel-local",
        _HOST,
        "incompatible",
        f"The {side} engine tells its peers to find it at localhost, so no other pod reaches it.",
        f"Set {_HOST} to the pod's IP (fieldRef status.podIP) on {side}.",
        shown if side == "prefill" else nothing,
        shown if side == "decode" else nothing,
    )


def _policy(pair: Pair) -> Iterator[Finding]:
    if pair.transfer is None:
        return
    reader: Connector = pair.transfer[1]
    if reader.load_failure_policy == "recompute":
        yield finding(
            "failures-hidden",
            "kv_load_failure_policy",
            None,
            "Decode computes a prompt anew when its KV cannot be loaded: failures show as latency, not as errors.",
            "Watch local_compute on decode beside the failed transfers.",
            Shown("", ""),
            Shown("recompute", reader.source),
        )


def _lengths(pair: Pair) -> Iterator[Finding]:
    lengths = [
        facts.live.max_model_len or whole(facts.arguments.value("max-model-len"))
        for facts in (pair.prefill, pair.decode)
    ]
    if None in lengths or lengths[0] == lengths[1]:
        return
    yield finding(
        "lengths-differ",
        "max-model-len",
        None,
        f"The longest request is {lengths[0]} tokens on prefill and {lengths[1]} on decode.",
        "Use the same --max-model-len, or the longer prompts fail on one side.",
        Shown(str(lengths[0]), "--max-model-len or GET /v1/models"),
        Shown(str(lengths[1]), "--max-model-len or GET /v1/models"),
    )


def _unread(pair: Pair) -> Iterator[MissingFact]:
    if pair.same.identical:
        return
    if (why := unread(pair.prefill)) is not None:
        yield MissingFact("prefill", factors.ENGINE, "flags that cannot be read", why)
    if (why := unread(pair.decode)) is not None:
        yield MissingFact("decode", factors.ENGINE, "flags that cannot be read", why)
