"""From the answers of a series to its verdict, as JSON with everything that it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from controlplane.paths.asks import answer_of, result_of
from controlplane.paths.counters import Counts, increase
from controlplane.paths.models import ProbeSeries
from controlplane.paths.pool_settings import PoolSettings
from controlplane.paths.view import PoolView, guard_of
from policy.parity import ParityRule, PromptEvidence, judge_parity
from policy.probes import Group, Surroundings, judge_probes

Json = dict[str, Any]


def judge(
    series: ProbeSeries,
    plan: Mapping[str, Any],
    answers: Sequence[Mapping[str, Any]],
    pool: PoolView,
    settings: PoolSettings,
    *,
    after: Mapping[str, Counts],
) -> Json:
    """The verdict of a whole series. `after` are the groups' counters now; those from before are in the plan."""
    now = {pod.name: pod.uid for pod in pool.pods if pod.ready}
    if moved := sorted(name for name, _, _, uid in plan["groups"] if now.get(name) != uid):
        return _groups_changed(moved)
    if series.kind == ProbeSeries.Kind.PARITY:
        return _parity(series, plan, answers, settings)
    groups = [Group(*each[:3]) for each in plan["groups"]]
    asked = {group.id for group in groups}
    others = [
        Group(pod.name, pod.role, pod.revision) for pod in pool.pods if pod.in_pool and pod.name not in asked
    ]
    around = Surroundings(
        counters=increase(plan["before"], after, restarts={}),
        guard=str(guard_of(pool.routes, pool.router.settings.strict_header)["verdict"]),
    )
    results = [result_of(ask, kept) for ask, kept in zip(plan["asks"], answers, strict=True)]
    verdict = asdict(judge_probes(results, groups, others=others, around=around))
    # Who served which probe stands with the results; JSON would turn the numbers into text.
    verdict.pop("served")
    verdict["asked_directly"] = sorted(
        {f"{ask['prefill']} → {ask['pod']}" for ask in plan["asks"] if ask.get("prefill")}
    )
    return verdict


def _groups_changed(moved: Sequence[str]) -> Json:
    """Names come back when pods are replaced; what an earlier pod of the name did proves nothing about this one."""
    return {
        "verdict": "not-evaluable",
        "reason": "groups-changed",
        "sentence": f"{moved[0]} was replaced or is no longer ready since the first probe.",
        "next_action": "Probe again when the groups stand.",
        "groups": list(moved),
    }


def _parity(
    series: ProbeSeries, plan: Mapping[str, Any], answers: Sequence[Mapping[str, Any]], settings: PoolSettings
) -> Json:
    """Answers to one prompt under one salt belong together."""
    evidence: dict[str, tuple[list[Any], list[Any]]] = {}
    revisions = {name: revision for name, _, revision, _ in plan["groups"]}
    for ask, kept in zip(plan["asks"], answers, strict=True):
        path, direct = evidence.setdefault(ask["prompt"], ([], []))
        answer = answer_of(ask, kept, revisions)
        if answer is not None:
            (direct if ask["pod"] else path).append(answer)
    verdict = judge_parity(
        [PromptEvidence(prompt, tuple(path), tuple(direct)) for prompt, (path, direct) in evidence.items()],
        reference="direct" if settings.reference == "direct" else "none",
        seed=series.pk,
        rule=ParityRule(margin=settings.margin),
    )
    return asdict(verdict)
