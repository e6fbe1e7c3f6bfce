"""Misbehaviour on request: which engines misbehave, and how.

A fault is a mapping of kinds to options, from the pod's environment (``ENGINE_FAULTS``) or by POST /faults:

======================  ================================================================================
slow                    factor (3): everything takes so many times longer
corrupt                 fraction (1.0), quiet: the engine computes wrongly: a decode engine's answers, or every
                        answer from a prefill engine's KV, are wrong whatever the pair
corrupt_pair            fraction (0.35), quiet: wrong tokens after KV came from a prefill engine of this pair
incompatible_pair       reason: the handshake of this pair fails
stale_agent             a decode engine keeps the first engine id it saw behind an address
short_lease             seconds (0), overwritten (true): leases of a prefill engine end so soon, no heartbeat helps
crash                   after_requests (0), seconds (5): resets its connections and is away, then starts anew
cold_start              requests (20), factor (5): the first requests after a start are slow
refuse                  status (429 or 503, default 503), share (1.0): no request is taken
status                  code (500), share (1.0), message: answered with this HTTP status after the work is done
======================  ================================================================================

All seconds are model seconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from deploy.demo.engines.pods import EnginePod

Options = Mapping[str, Any]
_DEFAULTS: dict[str, dict[str, Any]] = {
    "slow": {"factor": 3.0},
    "corrupt": {"fraction": 1.0, "quiet": False},
    "corrupt_pair": {"fraction": 0.35, "quiet": False},
    "incompatible_pair": {"reason": "refused by a fault"},
    "stale_agent": {},
    "short_lease": {"seconds": 0.0, "overwritten": True},
    "crash": {"after_requests": 0, "seconds": 5.0},
    "cold_start": {"requests": 20, "factor": 5.0},
    "refuse": {"status": 503, "share": 1.0},
    "status": {"code": 500, "share": 1.0, "message": "simulated failure"},
}
PAIR_KINDS = ("corrupt_pair", "incompatible_pair")
_MATCHES = ("namespace", "set", "pod", "role", "revision", "pair")


class BadFault(ValueError):
    """A fault or a match that nothing here understands; the text says which."""


@dataclass(frozen=True)
class Rule:
    """Faults for the engines that ``match`` finds; of several rules with one kind the newest holds."""

    id: int
    match: Mapping[str, Any]
    faults: Mapping[str, Options]

    def finds(self, pod: EnginePod) -> bool:
        """Whether every named property, pairs aside, is the pod's."""
        mine = {
            "namespace": pod.namespace,
            "set": pod.set_name,
            "pod": pod.name,
            "role": pod.role,
            "revision": pod.revision,
        }
        return all(mine[name] == wanted for name, wanted in self.match.items() if name != "pair")

    def finds_pair(self, prefill: EnginePod, decode: EnginePod) -> bool:
        """Whether this rule is about these two: its pair is theirs, and one of them has the other properties."""
        pair = self.match.get("pair", ("*", "*"))
        both = zip(pair, (prefill.revision, decode.revision), strict=True)
        if not all(wanted in ("*", revision) for wanted, revision in both):
            return False
        return self.finds(prefill) or self.finds(decode)

    def document(self) -> dict[str, Any]:
        """As GET /faults shows it."""
        return {
            "id": self.id,
            "match": dict(self.match),
            "fault": {k: dict(v) for k, v in self.faults.items()},
        }


def checked(faults: Any) -> dict[str, Options]:
    """Faults with all options filled in. BadFault for unknown kinds, options, or values of another type."""
    if not isinstance(faults, dict) or not faults:
        raise BadFault('a fault is an object of kinds, such as {"slow": {"factor": 3}}')
    found: dict[str, Options] = {}
    for kind, given in faults.items():
        if kind not in _DEFAULTS:
            raise BadFault(f"unknown fault {kind!r}; known: {', '.join(_DEFAULTS)}")
        usual = _DEFAULTS[kind]
        options = {} if given in (None, True) else given
        if not isinstance(options, dict) or not options.keys() <= usual.keys():
            raise BadFault(f"{kind} takes {', '.join(usual) or 'no options'}")
        for name, value in options.items():
            if not isinstance(value, _type_of(usual[name])) or isinstance(value, bool) is not isinstance(
                usual[name], bool
            ):
                raise BadFault(f"{kind}.{name} is like {usual[name]!r}")
        found[kind] = {**usual, **options}
    return found


def _type_of(usual: Any) -> tuple[type, ...]:
    return (int, float) if isinstance(usual, (int, float)) else (type(usual),)


def environment_faults(pod: EnginePod) -> dict[str, Options]:
    """What the pod's own environment asks for; {} when it asks for nothing. BadFault as :func:`checked`."""
    text = pod.env.get("ENGINE_FAULTS", "")
    if not text:
        return {}
    try:
        return checked(json.loads(text))
    except ValueError as problem:
        raise BadFault(f"ENGINE_FAULTS of {pod.key}: {problem}") from problem


@dataclass
class FaultList:
    """The live rules; ``version`` grows with every change."""

    rules: list[Rule] = field(default_factory=list)
    version: int = 0
    _ids: count[int] = field(default_factory=lambda: count(1))

    def add(self, match: Any, fault: Any) -> Rule:
        """A new rule. BadFault for what cannot be understood."""
        if not isinstance(match, dict) or not match.keys() <= set(_MATCHES):
            raise BadFault(f"match takes {', '.join(_MATCHES)}")
        pair = match.get("pair")
        if pair is not None and not (isinstance(pair, list) and len(pair) == 2):
            raise BadFault('a pair is [prefill revision, decode revision]; "*" stands for any')
        faults = checked(fault)
        if pair is not None and not faults.keys() <= set(PAIR_KINDS):
            raise BadFault(f"a pair can have {' and '.join(PAIR_KINDS)} only")
        rule = Rule(next(self._ids), match, faults)
        self.rules.append(rule)
        self.version += 1
        return rule

    def remove(self, rule_id: int | None = None) -> int:
        """Remove one rule, or all; returns how many went. Faults of pods' environments stay."""
        kept = [] if rule_id is None else [rule for rule in self.rules if rule.id != rule_id]
        gone = len(self.rules) - len(kept)
        self.rules[:] = kept
        self.version += 1
        return gone

    def of_engine(self, pod: EnginePod) -> dict[str, Options]:
        """Live faults of one engine, without those of pairs."""
        found: dict[str, Options] = {}
        for rule in self.rules:
            if rule.finds(pod):
                found |= {kind: options for kind, options in rule.faults.items() if kind not in PAIR_KINDS}
        return found

    def of_pair(self, kind: str, prefill: EnginePod, decode: EnginePod) -> Options | None:
        """The newest live fault of a kind for a pair."""
        for rule in reversed(self.rules):
            if kind in rule.faults and rule.finds_pair(prefill, decode):
                return rule.faults[kind]
        return None
