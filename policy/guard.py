"""The header guard: whether clients can choose their revision, priority or tenant through a route.

The router trusts these headers, so the gateway must remove them, or set them to a value of its own (router-policy 3.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import yaml

from policy.rollout.wording import listed

Verdict: TypeAlias = Literal["guarded", "open", "cannot-tell"]

REVISION = "x-disagg-revision"
OBJECTIVES = ("x-llm-d-inference-objective", "x-gateway-inference-objective")
FAIRNESS = ("x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id")
NAMES = (REVISION, *OBJECTIVES, *FAIRNESS)


@dataclass(frozen=True, slots=True)
class GuardVerdict:
    """`unguarded` are the names that reach the router as a client sent them through one rule at least. `filter` is the
    rule's filter to add, as YAML; empty where there is nothing to add."""

    verdict: Verdict
    sentence: str
    next_action: str
    unguarded: tuple[str, ...] = ()
    filter: str = ""


def judge_guard(route: Mapping[str, Any], names: Iterable[str] = NAMES) -> GuardVerdict:
    """Judge one HTTPRoute by its rules that lead to an InferencePool.

    Guarded: every such rule removes or sets every name, for all its backends. Cannot tell: an ExtensionRef filter may
    do it elsewhere.
    """
    wanted = [name.lower() for name in names]
    title = f"Route {route['metadata'].get('namespace', '')}/{route['metadata']['name']}"
    rules = [rule for rule in (route.get("spec") or {}).get("rules") or () if _pools(rule)]
    if not rules:
        return GuardVerdict("cannot-tell", f"{title} leads to no pool.", "Nothing to do.")
    passing: set[str] = set()
    elsewhere = False
    for rule in rules:
        handled, extended = _handled(rule)
        passing |= set(wanted) - handled
        elsewhere = elsewhere or extended
    if not passing:
        return GuardVerdict("guarded", f"{title} removes or sets {listed(wanted)}.", "Nothing to do.")
    missing = tuple(name for name in wanted if name in passing)
    if elsewhere:
        sentence = f"{title} has a filter of its own kind, which may remove {listed(missing)} or not."
        return GuardVerdict("cannot-tell", sentence, "Send the header from a client and see.", missing)
    return GuardVerdict(
        "open",
        f"{title} passes {listed(missing)} on as clients send it.",
        "Add this filter to each of its rules.",
        missing,
        _filter(missing),
    )


def _pools(rule: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [ref for ref in rule.get("backendRefs") or () if ref.get("kind") == "InferencePool"]


def _handled(rule: Mapping[str, Any]) -> tuple[set[str], bool]:
    """Names that no backend of the rule passes on, and whether a filter that cannot be read is there."""
    own, extended = _by_filters(rule.get("filters") or ())
    by_backend = [_by_filters(ref.get("filters") or ()) for ref in _pools(rule)]
    shared = set.intersection(*(names for names, _ in by_backend)) if by_backend else set()
    return own | shared, extended or any(more for _, more in by_backend)


def _by_filters(filters: Sequence[Mapping[str, Any]]) -> tuple[set[str], bool]:
    names: set[str] = set()
    for each in filters:
        modifier = each.get("requestHeaderModifier") or {}
        names |= {str(name).lower() for name in modifier.get("remove") or ()}
        names |= {str(one.get("name", "")).lower() for one in modifier.get("set") or ()}
    return names, any(each.get("type") == "ExtensionRef" for each in filters)


def _filter(names: Sequence[str]) -> str:
    document = [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"remove": list(names)}}]
    return str(yaml.safe_dump(document, sort_keys=False))
