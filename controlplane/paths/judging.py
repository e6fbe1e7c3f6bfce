"""From the answers of a series to its verdict, as JSON with everything that it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from controlplane.paths.asks import answer_of, result_of
from controlplane.paths.counters import Counts, increase
from controlplane.paths.golden import answers_of, summary_of
from controlplane.paths.models import GoldenOutputs, ProbeSeries
from controlplane.paths.pool_settings import PoolSettings
from controlplane.paths.view import EnginePod, PoolView, guard_of
from policy.parity import Answer, ParityRule, PromptEvidence, judge_parity
from policy.parity.verdict import Reference
from policy.probes import Group, Surroundings, judge_probes

Json = dict[str, Any]
_REFERENCES: Mapping[str, Reference] = {"direct": "direct", "golden": "golden"}


def judge(
    series: ProbeSeries,
    plan: Mapping[str, Any],
    answers: Sequence[Mapping[str, Any]],
    pool: PoolView,
    settings: PoolSettings,
    *,
    after: Mapping[str, Counts],
    golden: GoldenOutputs | None = None,
) -> Json:
    """The verdict of a whole series. `after` are the groups' counters now; those from before are in the plan.
    `golden` are the golden outputs that its answers are compared with, where the pool says so and there are any."""
    now = {pod.name: pod for pod in pool.pods if pod.ready}
    if moved := sorted(name for name, _, _, *sign in plan["groups"] if not is_same(sign, now.get(name))):
        return _groups_changed(moved)
    if series.kind == ProbeSeries.Kind.PARITY:
        return _parity(series, plan, answers, settings, golden)
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


def is_same(sign: Sequence[Any], pod: EnginePod | None) -> bool:
    """Whether a pod is the one that a plan wrote down, and its engine as well: UID and restarts. A plan of an older
    version has no restarts."""
    return pod is not None and [pod.uid, pod.restarts][: len(sign)] == list(sign)


def _groups_changed(moved: Sequence[str]) -> Json:
    """Names come back when pods are replaced, and pods stay when their containers restart; what an earlier engine did
    proves nothing about this one."""
    return {
        "verdict": "not-evaluable",
        "reason": "groups-changed",
        "sentence": f"{moved[0]} was replaced, has restarted or is no longer ready since the first probe.",
        "next_action": "Probe again when the groups stand.",
        "groups": list(moved),
    }


def answers_by_prompt(
    plan: Mapping[str, Any], answers: Sequence[Mapping[str, Any]]
) -> dict[str, tuple[list[Answer], list[Answer]]]:
    """Prompt → usable answers of the path, and of decode pods that were asked directly."""
    found: dict[str, tuple[list[Answer], list[Answer]]] = {}
    revisions = {name: revision for name, _, revision, *_ in plan["groups"]}
    for ask, kept in zip(plan["asks"], answers, strict=True):
        path, direct = found.setdefault(ask["prompt"], ([], []))
        answer = answer_of(ask, kept, revisions)
        if answer is not None:
            (direct if ask["pod"] else path).append(answer)
    return found


def _parity(
    series: ProbeSeries,
    plan: Mapping[str, Any],
    answers: Sequence[Mapping[str, Any]],
    settings: PoolSettings,
    golden: GoldenOutputs | None,
) -> Json:
    """Answers to one prompt under one salt belong together; those of golden outputs were asked for with theirs."""
    reference = _REFERENCES.get(settings.reference, "none")
    kept = answers_of(golden)
    evidence = [
        PromptEvidence(prompt, tuple(path), kept.get(prompt, ()) if reference == "golden" else tuple(direct))
        for prompt, (path, direct) in answers_by_prompt(plan, answers).items()
    ]
    rule = ParityRule(margin=settings.margin)
    verdict = asdict(judge_parity(evidence, reference=reference, seed=series.pk, rule=rule))
    if reference == "golden":
        verdict["golden"] = summary_of(golden) if golden else None
    return verdict
