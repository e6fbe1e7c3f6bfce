"""From raw objects to what a plan says: rows, hazards, fit, bounds. Facts in, policy decides, JSON out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from controlplane.fleet.names import SET_NAME, SET_REVISION, SET_ROLE
from controlplane.fleet.writers import outside_writers
from controlplane.holds.live import LiveSet, is_external
from controlplane.holds.scalers.seen import RESOURCES
from controlplane.upgrades.bounds import Bounds
from controlplane.upgrades.gate_rules import gates_of, rules_of, weakened
from controlplane.upgrades.models import Plan
from controlplane.upgrades.surroundings import Surroundings
from policy.approval.risk import Environment, RiskFacts, assess_risk
from policy.rollout.hazards import (
    FitFacts,
    PlanFacts,
    RoleFacts,
    ScalerFacts,
    find_hazards,
    read_pod_facts,
)
from policy.rollout.hazards_path import PathExam
from policy.rollout.holds import (
    EVERY_ROW,
    FIRST_COMPLETE_ROW,
    PlanView,
    minimum_ready,
    total_peak_devices,
    view_plan,
)
from policy.rollout.pace import Pace, resolve_pace
from policy.rollout.planner import Row, executor_rows, plan
from policy.rollout.scope import change_scope, rolls_out
from policy.topology.devices import devices_of
from policy.topology.facts import Cluster
from policy.topology.fit import fit
from policy.topology.quota import without
from policy.topology.reading import read_groups, read_node, read_pod, read_quota

Json = dict[str, Any]
KNOWN_LWS = ("0.9.0", "v0.9.0")


@dataclass(frozen=True, slots=True)
class Vectors:
    """The planner's input, one entry per role: planned roles in order, then removed ones."""

    roles: tuple[str, ...]
    initial: tuple[int, ...]
    ready: tuple[int, ...]
    target: tuple[int, ...]
    pace: tuple[Pace, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class PlanVerdict:
    """What is stored on the plan."""

    revision: str
    rows: Json
    hazards: list[Json]
    bounds: Bounds


def judge(
    found: Plan,
    live: LiveSet,
    before: Sequence[Mapping[str, Any]],
    after: Sequence[Mapping[str, Any]],
    written: Sequence[Mapping[str, Any]],
    around: Surroundings,
    exam: PathExam | None = None,
) -> PlanVerdict:
    """Judge a proposal: `before` and `after` as the server stores them, `written` as the author wrote them. `exam` is
    what was seen of the request path, None where nobody looked."""
    labels, revision = sorted(live.live_labels()), live_revision(live)
    vectors = _vectors(live, revision, before, after)
    view = _view(found, vectors, live, before, after)
    fitting = _fit(found, live, vectors, after, around)
    facts = PlanFacts(
        set_name=found.workload.name,
        roles=_role_facts(vectors, before, after, written),
        scope=change_scope(before, after),
        view=view if rolls_out(before, after) else None,
        live_revisions=tuple(labels),
        rollout_in_flight=_moving(live, revision),
        lws_version=found.workload.cluster.lws_version or None,
        slices_before=len(live.slices),
        slices_after=len(live.slices),
        prv_users=_prv_users(found.workload.name, after),
        writers=outside_writers(live.body),
        scalers=_scaler_facts(live, after, around),
        fit=fitting,
        path=exam,
    )
    hazards = [asdict(hazard) for hazard in find_hazards(facts)]
    if not rolls_out(before, after):
        hazards.insert(0, _nothing_rolls())
    if unread := [each.plural for each in RESOURCES.values() if each.plural in around.unread]:
        hazards.insert(0, _scalers_unread(unread))
    return PlanVerdict(
        revision=revision,
        rows=_rows_json(vectors, view),
        hazards=hazards,
        bounds=_bounds(found, live, vectors, view),
    )


def live_revision(live: LiveSet) -> str:
    """The one revision that has groups; "" where there are none or several."""
    labels = sorted(live.live_labels())
    return labels[0] if len(labels) == 1 else ""


def _nothing_rolls() -> Json:
    return {
        "id": "no-template-changes",
        "severity": "block",
        "sentence": "No template changes, so there is nothing to roll out and nothing to hold.",
        "next_action": "Scale or change the pace on the set itself; an upgrade changes a template.",
        "facts": {},
    }


def _scalers_unread(unread: Sequence[str]) -> Json:
    return {
        "id": "scalers-unread",
        "severity": "block",
        "sentence": f"This account may not list {', '.join(unread)}, so a scaler on the set could not be seen.",
        "next_action": "Give Lockstep's account the rights as shipped, then check again.",
        "facts": {},
    }


def _vectors(
    live: LiveSet, revision: str, before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> Vectors:
    names = [role["name"] for role in after]
    names += [role["name"] for role in before if role["name"] not in names]
    targets = {role["name"]: live.target(role) for role in after}
    strategies = {
        role["name"]: (role["spec"].get("rolloutStrategy") or {}).get("rollingUpdateConfiguration")
        for role in after
    }
    counts = {name: [live.children.get((s, revision, name)) for s in live.slices] for name in names}
    initial = tuple(min((c.wanted if c else 0) for c in counts[name]) for name in names)
    ready = tuple(min((c.ready if c else 0) for c in counts[name]) for name in names)
    target = tuple(targets.get(name, 0) for name in names)
    pace = tuple(resolve_pace(strategies.get(name), targets.get(name, 0)) for name in names)
    rows = plan(
        initial=initial,
        target=target,
        surge=[p.surge for p in pace],
        unavailable=[p.unavailable for p in pace],
    )
    return Vectors(tuple(names), initial, ready, target, pace, executor_rows(rows, target=target))


def _view(
    found: Plan,
    vectors: Vectors,
    live: LiveSet,
    before: Sequence[Mapping[str, Any]],
    after: Sequence[Mapping[str, Any]],
) -> PlanView:
    least = minimum_ready(
        initial=vectors.initial, target=vectors.target, unavailable=[p.unavailable for p in vectors.pace]
    )
    asked = found.options["minimum_ready"]
    return view_plan(
        vectors.rows,
        rules=found.options["holds"],
        target=vectors.target,
        minimum=[int(asked.get(name, count)) for name, count in zip(vectors.roles, least, strict=True)],
        old_devices=_devices(vectors.roles, before, found.workload.namespace),
        new_devices=_devices(vectors.roles, after, found.workload.namespace),
    )


def _devices(names: Sequence[str], roles: Sequence[Mapping[str, Any]], namespace: str) -> list[int]:
    by_name = {role["name"]: role for role in roles}
    return [
        devices_of(read_groups(by_name[name], namespace=namespace, how_many=1)[0]) if name in by_name else 0
        for name in names
    ]


def _role_facts(
    vectors: Vectors,
    before: Sequence[Mapping[str, Any]],
    after: Sequence[Mapping[str, Any]],
    written: Sequence[Mapping[str, Any]],
) -> tuple[RoleFacts, ...]:
    old, new = {r["name"] for r in before}, {r["name"]: r for r in after}
    wrote = {r["name"]: r for r in written}
    found = []
    for position, name in enumerate(vectors.roles):
        role = new.get(name)
        block = ((wrote.get(name) or {}).get("spec", {}).get("rolloutStrategy") or {}).get(
            "rollingUpdateConfiguration"
        )
        found.append(
            RoleFacts(
                name=name,
                live_groups=vectors.initial[position] if name in old else None,
                ready_groups=vectors.ready[position],
                target_groups=vectors.target[position] if role else None,
                pace_written=block,
                size=int(role["spec"]["leaderWorkerTemplate"].get("size", 1)) if role else 1,
                external=is_external(role or {}),
                pods=read_pod_facts(role) if role else read_pod_facts({}),
            )
        )
    return tuple(found)


def _scaler_facts(
    live: LiveSet, after: Sequence[Mapping[str, Any]], around: Surroundings
) -> tuple[ScalerFacts, ...]:
    seen = [
        ScalerFacts(
            name=each.name,
            target=f"{each.target.kind} {each.target.name}",
            role=each.target.role,
            way=each.pause.way,
            problem=each.pause.problem,
            of_revision=each.target.moves,
        )
        for each in around.scalers
    ]
    unknown = [role["name"] for role in after if is_external(role) and role["name"] not in live.scaled]
    return (
        *seen,
        *(ScalerFacts(f"role {name}", "", name, problem="its role scaler is not seen") for name in unknown),
    )


def _moving(live: LiveSet, revision: str) -> bool:
    wanted = {role["name"]: live.target(role) for role in live.roles}
    return any(
        live.counts().get((s, revision, name), 0) != count
        for s in live.slices
        for name, count in wanted.items()
    )


def _prv_users(name: str, roles: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(
        role["name"] for role in roles if f"{name}-" in (text := json.dumps(role["spec"])) and "-prv" in text
    )


def _fit(
    found: Plan, live: LiveSet, vectors: Vectors, after: Sequence[Mapping[str, Any]], around: Surroundings
) -> FitFacts:
    """Place what the fullest moment adds: the old side of the row before beside the new side of the row."""
    if unread := {"nodes", "pods", "resourcequotas"} & set(around.unread):
        return FitFacts("unknown", sentence=f"This account may not list {', '.join(sorted(unread))}.")
    moments = [(a.old, b.new) for a, b in zip(vectors.rows, vectors.rows[1:], strict=False)]
    if not moments:
        return FitFacts("fits")
    old, new = max(moments, key=lambda moment: sum(moment[0]) + sum(moment[1]))
    by_name = {role["name"]: role for role in after}
    at_once = len(live.slices) if found.options["slice_order"] == "together" else 1
    groups = [
        group
        for name, count in zip(vectors.roles, new, strict=True)
        if name in by_name
        for group in read_groups(by_name[name], namespace=found.workload.namespace, how_many=count * at_once)
    ]
    keep = dict(zip(vectors.roles, old, strict=True))
    drained = [pod for pod in around.pods if _drained(pod, found, keep)]
    gone = {pod["metadata"]["uid"] for pod in drained}
    kept = [pod for pod in around.pods if pod["metadata"]["uid"] not in gone]
    leaving = [pod for pod in map(read_pod, drained) if pod is not None]
    verdict = fit(
        Cluster(
            nodes=tuple(read_node(node) for node in around.nodes),
            pods=tuple(pod for pod in map(read_pod, kept) if pod is not None),
            quotas=tuple(without(read_quota(quota), leaving) for quota in around.quotas),
        ),
        groups,
    )
    first = f"{verdict.misfit.role} group {verdict.misfit.index}" if verdict.misfit else ""
    kinds: Mapping[str, Any] = {"fits": "fits", "does_not_fit": "does-not-fit", "estimate": "unknown"}
    return FitFacts(kinds[verdict.kind], first_group=first, sentence=verdict.sentence)


def _drained(pod: Mapping[str, Any], found: Plan, keep: Mapping[str, int]) -> bool:
    """Pods of the set's groups that are gone by then: LeaderWorkerSet removes the highest indexes first."""
    labels = pod["metadata"].get("labels", {})
    if (
        pod["metadata"]["namespace"] != found.workload.namespace
        or labels.get(SET_NAME) != found.workload.name
    ):
        return False
    index = int(labels.get("leaderworkerset.sigs.k8s.io/group-index", "0"))
    return SET_REVISION in labels and index >= keep.get(labels.get(SET_ROLE, ""), 0)


def _rows_json(vectors: Vectors, view: PlanView) -> Json:
    return {
        "version": 1,
        "roles": list(vectors.roles),
        "initial": list(vectors.initial),
        "target": list(vectors.target),
        "surge": [p.surge for p in vectors.pace],
        "unavailable": [p.unavailable for p in vectors.pace],
        "rows": [{key: _plain(value) for key, value in asdict(row).items()} for row in view.rows],
        "unmet_holds": list(view.holds.unmet),
    }


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _bounds(found: Plan, live: LiveSet, vectors: Vectors, view: PlanView) -> Bounds:
    options = found.options
    at_once = len(live.slices) if options["slice_order"] == "together" else 1
    peak = max(total_peak_devices(view, slices=len(live.slices), at_once=at_once), view.passing_devices)
    environment: Environment = found.workload.cluster.environment  # type: ignore[assignment]
    risk = assess_risk(
        RiskFacts(
            environment=environment,
            devices_now=view.rows[0].devices * len(live.slices),
            peak_devices=peak,
            roles_without_surge=tuple(
                n for n, p in zip(vectors.roles, vectors.pace, strict=True) if not p.surge
            ),
            off_default_bounds=(*_off_default(options), *weakened(environment, options["gates"])),
            fast_profile=options["profile"] == "fast",
        )
    )
    return Bounds(
        peak_devices=peak,
        minimum_ready=view.minimum,
        roles=vectors.roles,
        holds=tuple(options["holds"]),
        hold_seconds=int(float(options["hold_max_age"])),
        hold_end=options["hold_end"],
        hold_votes=options["hold_votes"],
        promote=options["promote"],
        slice_order=options["slice_order"],
        profile=options["profile"],
        stable_for=str(options["stable_for"]),
        risk=risk.level,
        risk_reasons=tuple(reason.sentence for reason in risk.reasons),
        gates=tuple(rules_of(gates_of(environment, options["gates"]))),
    )


def _off_default(options: Mapping[str, Any]) -> tuple[str, ...]:
    found = []
    if options["minimum_ready"]:
        found.append(f"minimum ready set by hand: {json.dumps(options['minimum_ready'], sort_keys=True)}")
    stops_at_first = {FIRST_COMPLETE_ROW, EVERY_ROW} & set(options["holds"])
    if not stops_at_first and options["profile"] != "fast":
        found.append('hold "first-complete-row" left out')
    if not options["hold_votes"]:
        found.append("holds need no approval of their own")
    return tuple(found)
