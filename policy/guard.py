"""The header guard: whether clients can choose their revision, priority or tenant by a header.

The router trusts these headers. Only the gateway can take them from clients, and in Gateway API that is a filter
RequestHeaderModifier. What a document says is not yet what a gateway does: some apply a route's header changes when
they forward a request, after the router has read it (seen in Istio; Envoy Gateway changed it in October 2025). So a
guard by document is proved only by a request from the public side, `judge_guard_probe`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from policy.rollout.wording import count, listed

Verdict: TypeAlias = Literal["guarded", "open", "cannot-tell"]
FILTER = "RequestHeaderModifier"
# Filters of these types change no header that the router reads.
HARMLESS = frozenset({"ResponseHeaderModifier", "RequestMirror", "URLRewrite", "CORS", FILTER})
NO_ENDPOINTS = "rejected-no-endpoints"


@dataclass(frozen=True, slots=True)
class GuardNames:
    """Headers to take from clients, each with its deprecated aliases (the newer name wins where both are sent).

    `pools` are InferencePools that count; empty: all. A rule that asks in every match for the exact value of
    `secret_header`, or a route that hangs on `probe_listeners` alone, is for probes and may keep the headers.
    """

    headers: tuple[tuple[str, ...], ...] = (
        ("x-disagg-revision",),
        ("x-llm-d-inference-objective", "x-gateway-inference-objective"),
        ("x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id"),
    )
    pools: tuple[str, ...] = ()
    secret_header: str = ""
    probe_listeners: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RuleGuard:
    """One rule: headers that pass, those that a filter of unknown effect may take, and the filter that is needed.

    `filters_yaml` is the whole RequestHeaderModifier to have in the rule (a rule may have one only); empty where
    nothing has to change.
    """

    rule: str
    verdict: Verdict
    passing: tuple[str, ...]
    uncertain: tuple[str, ...]
    filters_yaml: str


@dataclass(frozen=True, slots=True)
class Guard:
    """The verdict over a route; `reason` is stable and kebab-case."""

    verdict: Verdict
    reason: str
    sentence: str
    next_action: str
    rules: tuple[RuleGuard, ...] = ()

    @property
    def filters_yaml(self) -> str:
        """What to write, for the first rule that needs it."""
        return next((rule.filters_yaml for rule in self.rules if rule.filters_yaml), "")


@dataclass(frozen=True, slots=True)
class GuardProbe:
    """One request from the public side. `sent` is the value of the header ("" for a request without it).

    `known`: the value names a revision that serves (else one that cannot exist). `stamped` is the revision that
    the answer says served it.
    """

    sent: str
    status: int | None
    known: bool = False
    dropped_reason: str = ""
    stamped: str = ""


def judge_guard(route: Mapping[str, Any], names: GuardNames | None = None) -> Guard:
    """Judge one HTTPRoute document.

    Guarded: every rule that leads clients to a pool removes each header, or sets it to a value of its own. Open:
    one rule lets one pass. Cannot tell: no document of a route, no rule to a pool, or a filter of the gateway's own
    kind that may do it.
    """
    names = names or GuardNames()
    spec = route.get("spec")
    if route.get("kind") != "HTTPRoute" or not isinstance(spec, Mapping):
        return Guard(
            "cannot-tell", "no-route", "This is no HTTPRoute.", "Look at the route that leads to the pool."
        )
    if _for_probes_only(spec, names):
        return Guard(
            "guarded", "probe-listener", "The route is for probes; clients do not reach it.", "Nothing to do."
        )
    rules = tuple(_judge_rule(name, rule, names) for name, rule in _public_rules(spec, names))
    if not rules:
        sentence = "No rule of this route leads clients to the pool."
        return Guard("cannot-tell", "no-rule", sentence, "Look at the route that leads to the pool.")
    return _overall(rules)


def worst_guard(guards: Sequence[Guard]) -> Guard:
    """The verdict over all routes to a pool: open before cannot tell before guarded. Raises ValueError without any."""
    order: list[Verdict] = ["open", "cannot-tell", "guarded"]
    return min(guards, key=lambda guard: order.index(guard.verdict))


def judge_guard_probe(probes: Sequence[GuardProbe], *, least: int = 3) -> Guard:
    """What the public side shows of the revision header.

    A value that cannot exist is refused by the router with 503 and its reason if it arrives, and answered as usual
    if it was taken away. Requests without the header must be answered at the same time, else a refusal says
    nothing. A value that names a revision tells only if another one serves it.
    """
    plain = [probe for probe in probes if not probe.sent]
    impossible = [probe for probe in probes if probe.sent and not probe.known]
    answered = [probe for probe in plain if _answered(probe)]
    arrived = [probe for probe in impossible if probe.status == 503 and probe.dropped_reason == NO_ENDPOINTS]
    taken = [probe for probe in probes if probe.sent and _answered(probe) and (
        not probe.known or (probe.stamped and probe.stamped != probe.sent))]  # fmt: skip
    if len(answered) < least or len(answered) < len(plain):
        of = count(len(plain), "request")
        sentence = f"{len(answered)} of {of} without the header were answered; {least} are needed."
        return Guard("cannot-tell", "no-control", sentence, "Probe again when the pool serves.")
    if arrived:
        sentence = (
            f"{len(arrived)} of {count(len(impossible), 'request')} with a revision that cannot exist reached the "
            "router: clients can pin."
        )
        action = (
            "Strip the header before the router reads it: at the listener, or with a policy of the gateway."
        )
        return Guard("open", "header-arrives", sentence, action)
    if len(taken) < least or any(not _answered(probe) for probe in impossible):
        sentence = (
            f"{count(len(taken), 'request')} with the header were answered without it; {least} are needed."
        )
        return Guard("cannot-tell", "too-few-probes", sentence, "Send more requests from the public side.")
    sentence = f"{count(len(taken), 'request')} with the header were served as if it were not there."
    return Guard("guarded", "header-taken", sentence, "Nothing to do.")


def _answered(probe: GuardProbe) -> bool:
    return probe.status is not None and 200 <= probe.status < 300


def _for_probes_only(spec: Mapping[str, Any], names: GuardNames) -> bool:
    parents = spec.get("parentRefs") or []
    sections = [parent.get("sectionName") for parent in parents]
    return bool(sections) and all(section in names.probe_listeners for section in sections)


def _public_rules(spec: Mapping[str, Any], names: GuardNames) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Rules that lead clients to a pool, by name or place."""
    for place, rule in enumerate(spec.get("rules") or []):
        backends = [each for each in rule.get("backendRefs") or [] if _is_pool(each, names)]
        if backends and not _asks_for_secret(rule, names):
            yield str(rule.get("name") or f"rules[{place}]"), {**rule, "backendRefs": backends}


def _is_pool(backend: Mapping[str, Any], names: GuardNames) -> bool:
    """A weight of 0 counts too: the next shift of traffic opens it."""
    return backend.get("kind") == "InferencePool" and (not names.pools or backend.get("name") in names.pools)


def _asks_for_secret(rule: Mapping[str, Any], names: GuardNames) -> bool:
    matches = rule.get("matches") or []
    return bool(names.secret_header and matches) and all(
        any(
            str(header.get("name", "")).lower() == names.secret_header.lower()
            and header.get("type", "Exact") == "Exact"
            and header.get("value")
            for header in match.get("headers") or []
        )
        for match in matches
    )


def _judge_rule(name: str, rule: Mapping[str, Any], names: GuardNames) -> RuleGuard:
    """A header is taken by the rule's filter, or by the filters of every backend."""
    shared = rule.get("filters") or []
    per_backend = [backend.get("filters") or [] for backend in rule["backendRefs"]]
    passing: list[str] = []
    uncertain: list[str] = []
    for group in names.headers:
        for header in _left(group, [[*shared, *own] for own in per_backend]):
            own_kinds = all(
                any(each.get("type") not in HARMLESS for each in (*shared, *filters))
                for filters in per_backend
            )
            (uncertain if own_kinds else passing).append(header)
    verdict: Verdict = "open" if passing else "cannot-tell" if uncertain else "guarded"
    needed = [*passing, *uncertain]
    return RuleGuard(name, verdict, tuple(passing), tuple(uncertain), _yaml(shared, needed) if needed else "")


def _left(group: tuple[str, ...], filters: Sequence[Sequence[Mapping[str, Any]]]) -> list[str]:
    """Names of one header that pass some backend. A value set under the first name makes its aliases harmless."""
    left = []
    for header in group:
        for chain in filters:
            removed, stamped = _taken(chain)
            if header not in removed | stamped and group[0] not in stamped:
                left.append(header)
                break
    return left


def _taken(chain: Sequence[Mapping[str, Any]]) -> tuple[set[str], set[str]]:
    """Names that a chain of filters removes, and that it sets. `add` keeps what the client sent."""
    removed: set[str] = set()
    stamped: set[str] = set()
    for each in chain:
        if each.get("type") == FILTER:
            change = each.get("requestHeaderModifier") or {}
            removed |= {str(name).lower() for name in change.get("remove") or []}
            stamped |= {str(item.get("name", "")).lower() for item in change.get("set") or []}
    return removed, stamped


def _overall(rules: tuple[RuleGuard, ...]) -> Guard:
    leaky = [rule for rule in rules if rule.verdict == "open"]
    unsure = [rule for rule in rules if rule.verdict == "cannot-tell"]
    if leaky:
        said = [f"{rule.rule} lets {listed(rule.passing)} pass" for rule in leaky]
        sentence = f"Clients can set what the router trusts: {'; '.join(said)}."
        return Guard("open", "headers-pass", sentence, "Put the shown filter into the rule.", rules)
    if unsure:
        said = [f"{rule.rule} may let {listed(rule.uncertain)} pass" for rule in unsure]
        sentence = f"A filter of the gateway's own kind decides: {'; '.join(said)}."
        return Guard(
            "cannot-tell",
            "own-filter",
            sentence,
            "Probe from the public side, or add the shown filter.",
            rules,
        )
    sentence = f"{count(len(rules), 'rule')} to the pool take every trusted header from clients, as written."
    action = "Probe from the public side: some gateways change headers after the router has read them."
    return Guard("guarded", "headers-taken", sentence, action, rules)


def _yaml(shared: Sequence[Mapping[str, Any]], needed: Sequence[str]) -> str:
    """The rule's one RequestHeaderModifier with the headers removed as well. Values are JSON, which YAML reads."""
    change = next(
        (each.get("requestHeaderModifier") or {} for each in shared if each.get("type") == FILTER), {}
    )
    lines = ["filters:", f"- type: {FILTER}", "  requestHeaderModifier:"]
    for verb in ("set", "add"):
        items = [item for item in change.get(verb) or [] if str(item.get("name", "")).lower() not in needed]
        lines += [f"    {verb}:"] if items else []
        for item in items:
            lines += [
                f"    - name: {json.dumps(item.get('name'))}",
                f"      value: {json.dumps(item.get('value'))}",
            ]
    lines += ["    remove:"]
    lines += [f"    - {json.dumps(name)}" for name in dict.fromkeys([*(change.get("remove") or []), *needed])]
    return "\n".join(lines) + "\n"
