"""Gates of an upgrade: judged at every look of a hold and after every row, with everything that they rest on kept.

A red required gate holds the operation. One without a verdict keeps a hold waiting, because nothing is green for not
having been seen; between rows it blocks nothing, unless it was red before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from math import isfinite
from typing import Any

from controlplane.fleet.names import created_at
from controlplane.holds.live import LiveSet, read_pods
from controlplane.operations.contract import Done, Hold, Outcome, StepContext, Wait
from controlplane.paths.engines import side_of
from controlplane.paths.objects import read_objects
from controlplane.paths.view import PoolView
from controlplane.upgrades.gate_rules import with_rules
from controlplane.upgrades.path_exam import pools_of_set
from controlplane.upgrades.steplist import path_place
from controlplane.upgrades.steps.engine_versions import versions_of
from controlplane.upgrades.steps.gate_evidence import SERIES, count_restarts, of_series, with_margin
from controlplane.upgrades.steps.gate_numbers import (
    ROUTERS,
    Life,
    Numbers,
    Subject,
    ask_source,
    of_the_source,
)
from controlplane.upgrades.steps.memory import memory_of, plan_of
from policy.canonical import digest
from policy.gates import Gate, Judgement, judge_gate, judge_gates
from policy.rollout.wording import listed

Json = dict[str, Any]

JUDGED_EVERY = 10.0  # seconds; what is younger is as good, and the source is asked less
LOOK_EVERY = 5.0
PLACES_KEPT = 6
QUERIES_KEPT = 2  # of each gate: the new revision's and the old one's
_WORST = ("red", "not-evaluable", "green")


@dataclass(frozen=True, slots=True)
class Gated:
    """The verdict over the required gates: `green`, `red`, `not-evaluable`, or `not-judged` where there are none.

    `why` says in words that stay the same what is missing, `again` names gates that were red before and have no
    verdict now. `remember` is for the outcome of the step.
    """

    verdict: str
    sentence: str
    next_action: str
    why: str = ""
    again: tuple[str, ...] = ()
    facts: Json = field(default_factory=dict)
    remember: Json = field(default_factory=dict)


def judge_metric_gates(
    context: StepContext, live: LiveSet, *, slices: Sequence[str], row: int, keep: bool = False
) -> Gated:
    """Judge the plan's gates for the new revision, the old one being the baseline. With `keep` what they rest on
    stays as evidence of this place; red always does. Raises KubeError."""
    memory, place = memory_of(context), path_place(list(slices), row)
    rules: Sequence[Json] = memory.data.get("gate_rules") or ()
    if not rules or not _whole(context, row)[1]:
        return Gated("not-judged", "No request reaches the new revision yet.", "Nothing to do.")
    kept: Json = memory.data.get("gates") or {}
    if _still_good(context, kept, place):
        return _from_json(kept)
    pools = pools_of_set(read_objects(context.kube, memory.namespace), memory.name)
    windows = _windows(context, pools)
    environment: Any = context.cluster.environment
    evidence = (memory.data.get("path_evidence") or {}).get(place)
    gates = [with_margin(gate, evidence) for gate in with_rules(environment, rules)]
    subject, found = _subject(context, live, row, pools, windows)
    exempt = _exempt(context, gates, pools, place)
    numbers = ask_source(context.cluster, subject, gates) if context.cluster.metrics_url else Numbers()
    _add_evidence(context, gates, numbers, subject, place)
    shown = [_judged(gate, numbers, exempt.get(gate.id, "")) for gate in gates]
    gated = _overall(context, shown, place, {**found, "gate_windows": windows})
    return _kept(context, gated, place) if keep or gated.verdict == "red" else gated


def gated_row(
    context: StepContext, live: LiveSet, slices: Sequence[str], row: int, stands: Outcome
) -> Outcome:
    """The outcome of a look at a row that stands: what the gates make of it."""
    if not isinstance(stands, Done):
        return stands
    gated = judge_metric_gates(context, live, slices=slices, row=row)
    if gated.verdict == "red":
        return red_hold(gated)
    if gated.again:
        return Wait(
            LOOK_EVERY, f"gates that were red to be green: {listed(gated.again)}", remember=gated.remember
        )
    return replace(
        stands,
        result={**stands.result, "gates": gated.verdict},
        remember={**stands.remember, **gated.remember},
    )


def red_hold(gated: Gated, **remember: Any) -> Hold:
    """A red gate as the finding that holds the operation."""
    return Hold(
        code="gate-red",
        sentence=gated.sentence,
        next_action=f"{gated.next_action.rstrip('.')}; then retry to measure anew from now, or abort.",
        facts=gated.facts,
        remember={**gated.remember, **remember},
    )


def _still_good(context: StepContext, kept: Mapping[str, Any], place: str) -> bool:
    if (kept.get("place"), kept.get("tried")) != (place, [context.step_id, context.attempt]):
        return False
    return (context.now - datetime.fromisoformat(kept["at"])).total_seconds() < JUDGED_EVERY


def _whole(context: StepContext, row: int) -> tuple[bool, bool]:
    """Whether old and new revision have every role at this row: else the router sends them nothing."""
    memory = memory_of(context)
    old, new = memory.counts_at(row)
    began, _ = memory.counts_at(0)
    _, target = memory.counts_at(len(memory.rows) - 1)
    return (
        all(old[role] or not count for role, count in began.items()),
        all(new[role] or not count for role, count in target.items()),
    )


def _windows(context: StepContext, pools: Sequence[PoolView]) -> Json:
    """From when on samples count: all of them, or those since the objectives changed or somebody asked to retry."""
    kept: Json = context.operation.memory.get("gate_windows") or {}
    windows = {"since": kept.get("since"), "why": kept.get("why", ""), "tried": kept.get("tried")}
    objectives = digest(sorted([pool.uid, sorted(map(_objective, pool.objectives))] for pool in pools))
    if kept and kept.get("objectives") != objectives:
        windows |= {"since": context.now.isoformat(), "why": "the pool's objectives were changed"}
    tried = [context.step_id, context.attempt]
    if context.attempt > 1 and windows["tried"] != tried:
        windows |= {
            "since": context.first_claimed_at.isoformat(),
            "why": "measured anew after a retry",
            "tried": tried,
        }
    return {**windows, "objectives": objectives}


def _objective(body: Mapping[str, Any]) -> list[str]:
    spec = body.get("spec") or {}
    return [str(body["metadata"]["name"]), str(body["metadata"].get("uid") or ""), digest(_texts(spec))]


def _texts(value: Any) -> Any:
    """The same with fractions as text, for a digest."""
    if isinstance(value, Mapping):
        return {str(key): _texts(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_texts(each) for each in value]
    return repr(value) if isinstance(value, float) else value


def _subject(
    context: StepContext, live: LiveSet, row: int, pools: Sequence[PoolView], windows: Json
) -> tuple[Subject, Json]:
    memory, content = memory_of(context), plan_of(context).content or {}
    roles = {"old": content["roles_before"], "new": content["roles_after"]}
    versions, remember = versions_of(context, pools, {memory.old: roles["old"], memory.new: roles["new"]})
    sides = {str(role["name"]): side_of(role) for role in (*roles["old"], *roles["new"])}
    lives = [
        Life(label, _began(context, live, label), versions.get(label, {}))
        for label in (memory.new, memory.old)
    ]
    since = datetime.fromisoformat(windows["since"]) if windows["since"] else None
    return Subject(
        namespace=memory.namespace,
        name=memory.name,
        sides=sides,
        new=lives[0],
        old=lives[1],
        old_whole=_whole(context, row)[0],
        pools=tuple(pools),
        now=context.now,
        since=since,
    ), remember


def _began(context: StepContext, live: LiveSet, label: str) -> datetime:
    """When a revision's incarnation began: its first LeaderWorkerSet. A label that came back has new ones."""
    made = [created_at(child.body) for key, child in live.children.items() if key[1] == label]
    return min((each for each in made if each is not None), default=context.operation.started_at)


def _exempt(
    context: StepContext, gates: Sequence[Gate], pools: Sequence[PoolView], place: str
) -> dict[str, str]:
    """Gate id → why it is not required here, though the plan requires it: acknowledged with the plan's hazards."""
    series = ((context.operation.memory.get("path_evidence") or {}).get(place) or {}).get("series") or ()
    kinds = {each["kind"] for each in series}
    unmeasured = context.operation.memory.get("unmeasured") and not context.cluster.metrics_url
    found = {}
    for gate in gates:
        if of_the_source(gate) and unmeasured:
            found[gate.id] = "the cluster has no metric source"
        elif gate.metric in ROUTERS and not pools:
            found[gate.id] = "no InferencePool selects the set's pods"
        elif gate.metric in SERIES and SERIES[gate.metric] not in kinds:
            found[gate.id] = "no such series is sent here"
    return found


def _add_evidence(
    context: StepContext, gates: Sequence[Gate], numbers: Numbers, subject: Subject, place: str
) -> None:
    data, label = memory_of(context).data, subject.new.label
    evidence = (data.get("path_evidence") or {}).get(place)
    for gate in gates:
        if gate.metric in SERIES:
            numbers.put(gate, of_series(gate, evidence, label=label, now=context.now), ())
        elif gate.metric == "restarts":
            pods = read_pods(context.kube, subject.namespace, subject.name, label)
            stood = data.get("row_stood") or {}
            counted = count_restarts(
                gate,
                pods,
                label=label,
                now=context.now,
                since=subject.since,
                stood_from=datetime.fromisoformat(stood["at"]) if stood.get("place") == place else None,
            )
            numbers.put(gate, [counted], ())


def _judged(gate: Gate, numbers: Numbers, exempt: str) -> tuple[Gate, Judgement, Json]:
    """The worst judgement over roles or pools, and how it is shown and kept."""
    used = replace(gate, required=gate.required and not exempt)
    measurements = numbers.measurements.get(gate.id) or []
    judgements = [judge_gate(used, each) for each in measurements]
    worst = min(judgements, key=lambda each: _WORST.index(each.verdict), default=None)
    if worst is None:
        said = f"{gate.label}: {exempt or 'the cluster has no metric source'}."
        worst = Judgement(used, "not-evaluable", "no-data", said, gate.when_red)
    fields = {name: _finite(value) for name, value in asdict(worst).items() if name != "gate"}
    shown = {
        "id": gate.id,
        "label": gate.label,
        **fields,
        "required": used.required,
        "exempt": exempt,
        "evidence": gate.evidence,
        "window_s": gate.window_s,
        "versions": sorted({each.version for each in measurements if each.version}),
        "queries": numbers.queries.get(gate.id, [])[:QUERIES_KEPT],
    }
    return used, worst, shown


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not isfinite(value) else value


def _overall(
    context: StepContext, shown: Sequence[tuple[Gate, Judgement, Json]], place: str, remember: Json
) -> Gated:
    memory = context.operation.memory
    judgements = [judgement for _, judgement, _ in shown]
    overall = judge_gates(judgements)
    required = [judgement for judgement in judgements if judgement.gate.required]
    verdict: str = overall.verdict
    sentence, action = overall.sentence, overall.next_action
    if not required:
        verdict, sentence, action = "not-judged", "No gate is required here.", "Nothing to do."
    elif verdict == "not-evaluable" and not overall.missing:
        # Nothing here can look at the path, and whoever asked for this upgrade has acknowledged that.
        verdict, action = "green", "Nothing to do."
        sentence = f"{len(required)} required gates are green; none of them looks at the path."
    was_red = sorted({*(memory.get("gates_were_red") or ()), *overall.red})
    green = {judgement.gate.id for judgement in required if judgement.verdict == "green"}
    again = tuple(
        judgement.gate.label
        for judgement in required
        if judgement.gate.id in was_red and judgement.verdict == "not-evaluable"
    )
    missing = [judgement for judgement in required if judgement.gate.id in overall.missing]
    now: Json = {
        "at": context.now.isoformat(),
        "place": place,
        "tried": [context.step_id, context.attempt],
        "verdict": verdict,
        "sentence": sentence,
        "next_action": action,
        "why": "; ".join(f"{each.gate.label} ({each.reason.replace('-', ' ')})" for each in missing),
        "again": list(again),
        "since": remember["gate_windows"]["since"],
        "since_why": remember["gate_windows"]["why"],
        "gates": [each for _, _, each in shown],
    }
    remember |= {"gates": now, "gates_were_red": [each for each in was_red if each not in green]}
    return _from_json(now, remember=remember)


def _kept(context: StepContext, gated: Gated, place: str) -> Gated:
    """With the evidence of this place beside that of the last few."""
    before: Json = context.operation.memory.get("gate_evidence") or {}
    others = [(key, kept) for key, kept in before.items() if key != place]
    evidence = dict([*others, (place, gated.remember["gates"])][-PLACES_KEPT:])
    return replace(gated, remember={**gated.remember, "gate_evidence": evidence})


def _from_json(kept: Mapping[str, Any], *, remember: Json | None = None) -> Gated:
    red = [each for each in kept["gates"] if each["required"] and each["verdict"] == "red"]
    return Gated(
        verdict=kept["verdict"],
        sentence=kept["sentence"],
        next_action=kept["next_action"],
        why=kept["why"],
        again=tuple(kept["again"]),
        facts={"red": red, "since": kept["since"], "place": kept["place"]} if red else {},
        remember=remember or {},
    )
