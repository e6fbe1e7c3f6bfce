"""Reads Gateway and HTTPRoutes strictly: what is understood becomes rules, the rest a condition with its reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from deploy.demo.gateway.names import CONTROLLER, GATEWAY_GROUP, POOL_GROUP, PROBE_SECRET, ROUTER_ONLY
from deploy.demo.gateway.world import Key, Pool, World, read_pool

Doc = dict[str, Any]


@dataclass(frozen=True)
class Condition:
    """One condition of a status; the time and the generation are added when it is written."""

    type: str
    status: bool
    reason: str
    message: str = ""


@dataclass(frozen=True)
class Edit:
    """One change of a request header; ``value`` is empty for a removal."""

    verb: Literal["set", "add", "remove"]
    name: str
    value: str = ""


@dataclass(frozen=True)
class Backend:
    """One share of a rule's requests: a pool, or None for a reference that leads nowhere."""

    pool: Key | None
    weight: int
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class Rule:
    """One match and where its requests go; ``name`` is namespace/route/rule number. In order of precedence."""

    name: str
    path: str
    exact: bool
    headers: tuple[tuple[str, str], ...]
    backends: tuple[Backend, ...]


@dataclass(frozen=True)
class Attachment:
    """What is said about one parentRef of a route that names our gateway; ``ref`` as the route spells it."""

    ref: Doc
    accepted: Condition
    resolved: Condition


@dataclass(frozen=True)
class ListenerVerdict:
    """What is said about one listener of the gateway."""

    name: str
    accepted: Condition
    attached: int


@dataclass(frozen=True)
class Plan:
    """Everything that follows from one moment: rules and pools for Envoy, and what is said to whom."""

    serving: bool
    rules: tuple[Rule, ...]
    pools: Mapping[Key, Pool]
    accepted: Condition | None
    listeners: tuple[ListenerVerdict, ...]
    attachments: Mapping[Key, tuple[Attachment, ...]]


NOTHING = Plan(False, (), {}, None, (), {})
_ONE_LISTENER = "this gateway serves one listener"
_RESOLVED = Condition("ResolvedRefs", True, "ResolvedRefs")


def make_plan(world: World, gateway: Key, *, port: int) -> Plan:
    """What to serve for one gateway that listens on ``port``; nothing when it is missing or of another class."""
    doc = world.gateways.get(gateway)
    if doc is None or not is_ours(world, doc):
        return NOTHING
    served, verdicts = _listeners(doc, port)
    attachments: dict[Key, tuple[Attachment, ...]] = {}
    rules: list[tuple[tuple[Any, ...], Rule]] = []
    attached = 0
    for key, route in sorted(world.routes.items(), key=lambda item: item[0]):
        refs = [ref for ref in route["spec"].get("parentRefs") or [] if _names(ref, key, gateway)]
        if not refs:
            continue
        found, problems = _read_rules(route, key, world)
        resolved = _resolved(route, key[0], world)
        verdict = _accepted(problems)
        attachments[key] = tuple(
            Attachment(ref, _admitted(ref, key, gateway, doc, served) or verdict, resolved) for ref in refs
        )
        if any(each.accepted.status for each in attachments[key]):
            attached += 1
            age = route["metadata"].get("creationTimestamp", "")
            rules += [(_precedence(rule, age, place), rule) for place, rule in enumerate(found)]
    ordered = tuple(rule for _, rule in sorted(rules, key=lambda each: each[0]))
    return Plan(
        serving=bool(served),
        rules=ordered,
        pools=_pools(ordered, world),
        accepted=_gateway_accepted(served),
        listeners=tuple(_verdict(name, problem, attached) for name, problem in verdicts),
        attachments=attachments,
    )


def is_ours(world: World, gateway: Doc) -> bool:
    """Whether a gateway's class names this controller."""
    found = world.classes.get(("", gateway["spec"].get("gatewayClassName", "")))
    return found is not None and found["spec"].get("controllerName") == CONTROLLER


# --- the gateway


def _listeners(gateway: Doc, port: int) -> tuple[Doc | None, list[tuple[str, str]]]:
    """The listener that is served, and every listener with its problem. One is served: of our port, or the first."""
    listeners = gateway["spec"].get("listeners") or []
    fine = [each for each in listeners if not _listener_problem(each)]
    served = next((each for each in fine if each.get("port") == port), fine[0] if fine else None)
    verdicts = []
    for each in listeners:
        problem = _listener_problem(each)
        if not problem and each is not served:
            problem = _ONE_LISTENER
        verdicts.append((each["name"], problem))
    return served, verdicts


def _listener_problem(listener: Doc) -> str:
    if listener.get("protocol") != "HTTP":
        return f"protocol {listener.get('protocol')} is not supported"
    if listener.get("hostname"):
        return "hostname is not supported"
    allowed = listener.get("allowedRoutes") or {}
    if (allowed.get("namespaces") or {}).get("from", "Same") not in {"Same", "All"}:
        return "allowedRoutes.namespaces must be Same or All"
    return ""


def _verdict(name: str, problem: str, attached: int) -> ListenerVerdict:
    if problem:
        reasons = {_ONE_LISTENER: "PortUnavailable"}
        other = "UnsupportedProtocol" if problem.startswith("protocol") else "UnsupportedValue"
        reason = reasons.get(problem, other)
        return ListenerVerdict(name, Condition("Accepted", False, reason, problem), 0)
    return ListenerVerdict(name, Condition("Accepted", True, "Accepted"), attached)


def _gateway_accepted(served: Doc | None) -> Condition:
    if served is None:
        return Condition("Accepted", False, "ListenersNotValid", "no listener can be served")
    return Condition("Accepted", True, "Accepted")


# --- how a route is attached


def _names(ref: Doc, route: Key, gateway: Key) -> bool:
    kind = (ref.get("group", GATEWAY_GROUP), ref.get("kind", "Gateway"))
    return kind == (GATEWAY_GROUP, "Gateway") and (ref.get("namespace", route[0]), ref["name"]) == gateway


def _admitted(ref: Doc, route: Key, gateway: Key, doc: Doc, served: Doc | None) -> Condition | None:
    """The refusal of a route by the gateway's listener, or None."""
    if served is None:
        return Condition("Accepted", False, "NoMatchingParent", "the gateway has no listener that is served")
    if ref.get("sectionName", served["name"]) != served["name"]:
        text = f"listener {ref['sectionName']} is not served"
        return Condition("Accepted", False, "NoMatchingParent", text)
    if ref.get("port", served["port"]) != served["port"]:
        text = f"port {ref['port']} is not served"
        return Condition("Accepted", False, "NoMatchingParent", text)
    allowed = ((served.get("allowedRoutes") or {}).get("namespaces") or {}).get("from", "Same")
    if allowed == "Same" and route[0] != gateway[0]:
        text = f"listener {served['name']} takes routes of its own namespace only"
        return Condition("Accepted", False, "NotAllowedByListeners", text)
    return None


def _accepted(problems: list[str]) -> Condition:
    if problems:
        text = "not supported, so the route is not served: " + "; ".join(problems)
        return Condition("Accepted", False, "UnsupportedValue", text)
    return Condition("Accepted", True, "Accepted")


def _resolved(route: Doc, namespace: str, world: World) -> Condition:
    refs = [ref for rule in route["spec"].get("rules") or [] for ref in rule.get("backendRefs") or []]
    problems = [problem for ref in refs if (problem := _ref_problem(ref, namespace, world))]
    if problems:
        text = "its share of requests is answered 500: " + "; ".join(text for _, text in problems)
        return Condition("ResolvedRefs", False, problems[0][0], text)
    return _RESOLVED


def _precedence(rule: Rule, age: str, place: int) -> tuple[Any, ...]:
    """Order of Gateway API: exact path, longer path, more headers, older route, name, place in the route."""
    route = rule.name.rsplit("/", 1)[0]
    return (not rule.exact, -len(rule.path), -len(rule.headers), age, route, place)


# --- the rules of a route


def _read_rules(route: Doc, key: Key, world: World) -> tuple[list[Rule], list[str]]:
    """The rules of a route, one per match, and what in it is not supported."""
    spec = route["spec"]
    problems = _strange(spec, ("parentRefs", "rules"), "spec")
    rules: list[Rule] = []
    for number, rule in enumerate(spec.get("rules") or []):
        where = f"rules[{number}]"
        problems += _strange(rule, ("name", "matches", "filters", "backendRefs"), where)
        edits = _read_filters(rule.get("filters") or [], where, problems)
        backends = tuple(
            _read_backend(ref, key[0], world, edits, f"{where}.backendRefs[{place}]", problems)
            for place, ref in enumerate(rule.get("backendRefs") or [])
        )
        for place, match in enumerate(rule.get("matches") or [{}]):
            path, exact, headers = _read_match(match, f"{where}.matches[{place}]", problems)
            rules.append(Rule(f"{key[0]}/{key[1]}/{number}", path, exact, headers, backends))
    return rules, problems


def _read_match(match: Doc, where: str, problems: list[str]) -> tuple[str, bool, tuple[tuple[str, str], ...]]:
    problems += _strange(match, ("path", "headers"), where)
    path = match.get("path") or {}
    kind = path.get("type", "PathPrefix")
    if kind not in {"PathPrefix", "Exact"}:
        problems.append(f"{where}: path type {kind}")
    headers: dict[str, str] = {}
    for header in match.get("headers") or []:
        if header.get("type", "Exact") != "Exact":
            problems.append(f"{where}: header match type {header['type']}")
        headers.setdefault(header["name"].lower(), header["value"])  # of equal names the first counts
    value = path.get("value", "/")
    if kind == "PathPrefix":
        value = value.rstrip("/") or "/"  # /a and /a/ are one prefix, also in length
    return value, kind == "Exact", tuple(sorted(headers.items()))


def _read_filters(filters: Iterable[Doc], where: str, problems: list[str]) -> tuple[Edit, ...]:
    edits: list[Edit] = []
    for place, each in enumerate(filters):
        if each.get("type") != "RequestHeaderModifier":
            problems.append(f"{where}.filters[{place}]: {each.get('type')}")
            continue
        modifier = each.get("requestHeaderModifier") or {}
        edits += [Edit("set", one["name"].lower(), one["value"]) for one in modifier.get("set") or []]
        edits += [Edit("add", one["name"].lower(), one["value"]) for one in modifier.get("add") or []]
        edits += [Edit("remove", name.lower()) for name in modifier.get("remove") or []]
    problems += [f"{where}.filters: {problem}" for edit in edits if (problem := _edit_problem(edit))]
    return tuple(edits)


def _edit_problem(edit: Edit) -> str:
    """Why an edit cannot be given to Envoy, which would refuse the routes of everybody else with it."""
    if edit.name == "host":
        return f"{edit.verb} of host"
    if edit.verb != "remove" and edit.name in {*ROUTER_ONLY, PROBE_SECRET}:
        return f"{edit.verb} of {edit.name}, which belongs to the gateway"
    if not edit.value.isprintable():
        return f"{edit.verb} of {edit.name} to a value that is not printable"
    return ""


def _read_backend(
    ref: Doc, namespace: str, world: World, edits: tuple[Edit, ...], where: str, problems: list[str]
) -> Backend:
    own = _read_filters(ref.get("filters") or [], where, problems)
    known = not _ref_problem(ref, namespace, world)
    pool = (namespace, ref["name"]) if known else None
    return Backend(pool, int(ref.get("weight", 1)), (*edits, *own))


def _ref_problem(ref: Doc, namespace: str, world: World) -> tuple[str, str] | None:
    """Why a backendRef leads nowhere, as reason and text."""
    if (ref.get("group", ""), ref.get("kind", "Service")) != (POOL_GROUP, "InferencePool"):
        return "InvalidKind", f"{ref.get('kind', 'Service')} {ref['name']}: only InferencePools are served"
    if ref.get("namespace", namespace) != namespace:
        return "RefNotPermitted", f"InferencePool {ref['namespace']}/{ref['name']} is in another namespace"
    if (namespace, ref["name"]) not in world.pools:
        return "BackendNotFound", f"there is no InferencePool {namespace}/{ref['name']}"
    return None


def _strange(doc: Doc, known: Iterable[str], where: str) -> list[str]:
    """Fields with content that are not understood."""
    return [f"{where}.{field}" for field, value in doc.items() if field not in known and value]


def _pools(rules: Iterable[Rule], world: World) -> dict[Key, Pool]:
    keys = {backend.pool for rule in rules for backend in rule.backends if backend.pool}
    return {key: read_pool(world, key) for key in sorted(keys)}
