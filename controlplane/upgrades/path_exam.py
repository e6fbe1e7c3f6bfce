"""The path of a set at the time of a plan: who keeps revisions apart, and whether they would fit if nobody did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from controlplane.fleet.models import Cluster
from controlplane.fleet.names import SET_REVISION, SET_ROLE, labels_of
from controlplane.kube.client import Kube
from controlplane.paths.engines import engine_facts, revision_facts, side_of, tagged_version_of
from controlplane.paths.golden import pools_without_golden
from controlplane.paths.models import Pool
from controlplane.paths.objects import PathObjects, read_objects
from controlplane.paths.pool_settings import PoolSettings, read_settings
from controlplane.paths.screening import (
    Screened,
    guard_was_seen,
    prove_guard,
    prove_screening,
    read_screening,
)
from controlplane.paths.view import PoolView, guard_of, paths_of_set
from controlplane.upgrades.models import Plan
from policy.rollout.hazards_path import CrossPair, PathExam
from policy.transfer.verdict import PairVerdict, judge_pairs

Json = dict[str, Any]
ANSWER_FLAGS = ("model", "revision", "quantization", "dtype", "lora-modules")
_WEAKEST = ("unknown", "absent", "configured", "proved")


def examine_path(
    kube: Kube,
    plan: Plan,
    *,
    revision: str,
    before: Sequence[Mapping[str, Any]],
    after: Sequence[Mapping[str, Any]],
    pods: Sequence[Mapping[str, Any]],
) -> tuple[PathExam, Json]:
    """What the plan may rest on, and what is kept of it: pools, router digests, weights, transfer verdicts.

    `pods` are all pods that are known of the set's namespace. Sends two requests through each pool that may be
    probed. Raises KubeError where the cluster does not answer.
    """
    workload = plan.workload
    objects = read_objects(kube, workload.namespace)
    pools = pools_of_set(objects, workload.name)
    rows = settings_of_pools(workload.cluster)
    roles = list(dict.fromkeys(str(role["name"]) for role in (*before, *after)))
    screened = [_screen(pool, rows.get(pool.uid), revision, roles, workload.name) for pool in pools]
    weakest = min(screened, key=lambda each: _WEAKEST.index(each.state), default=Screened("unknown", ""))
    pairs = _pairs(before, after, revision, pods)
    guards = [_guard(pool, rows.get(pool.uid)) for pool in pools]
    open_one = next((guard for guard in guards if guard["verdict"] == "open"), None)
    unsure = any(guard["verdict"] == "cannot-tell" for guard in guards)
    exam = PathExam(
        pools=tuple(pool.name for pool in pools),
        screening=weakest.state,
        why=weakest.why,
        pairs=_cross_pairs(pairs),
        guard="open" if open_one else "cannot-tell" if unsure or not guards else "guarded",
        guard_sentence=open_one["sentence"] if open_one else "",
        probed=bool(pools) and all(probes_of(pool, rows.get(pool.uid)) for pool in pools),
        unread=objects.unread,
        metric_source=bool(workload.cluster.metrics_url),
        without_golden=_without_golden(workload.cluster, pools, rows),
        other_weights=_other_weights([rows.get(pool.uid) for pool in pools], before, after),
        unversioned=_unversioned([rows.get(pool.uid) for pool in pools], after),
    )
    kept = {
        "pools": [
            {
                **pool_facts(pool, rows.get(pool.uid)),
                "screened": {"state": each.state, "why": each.why},
                "guard": guard,
            }
            for pool, each, guard in zip(pools, screened, guards, strict=True)
        ],
        "transfer": [_pair_facts(each) for each in pairs],
    }
    return exam, kept


def _without_golden(
    cluster: Cluster, pools: Sequence[PoolView], settings: Mapping[str, PoolSettings]
) -> tuple[str, ...]:
    """Pools of which parity would say nothing: it compares with golden outputs, and nobody vouches for any."""
    probed = [pool for pool in pools if probes_of(pool, settings.get(pool.uid))]
    lacking = pools_without_golden(cluster, [pool.uid for pool in probed])
    return tuple(pool.name for pool in probed if pool.uid in lacking)


def _other_weights(
    settings: Sequence[PoolSettings | None],
    before: Sequence[Mapping[str, Any]],
    after: Sequence[Mapping[str, Any]],
) -> tuple[str, ...]:
    """Engine arguments that change what a model answers and that differ, where a pool compares with golden outputs."""
    if not any(each is not None and each.can_probe and each.reference == "golden" for each in settings):
        return ()
    sides = [[engine_facts(role, ()) for role in roles] for roles in (before, after)]
    old, new = ([facts.arguments for facts in side if facts is not None] for side in sides)
    return tuple(
        flag
        for flag in ANSWER_FLAGS
        if {str(each.value(flag)) for each in old} != {str(each.value(flag)) for each in new}
    )


def _unversioned(
    settings: Sequence[PoolSettings | None], after: Sequence[Mapping[str, Any]]
) -> tuple[str, ...]:
    """Roles of the new revision whose engines will be asked by nobody and whose image says no version. Who compares
    with golden outputs says that decode pods are not reached."""
    if any(each is not None and each.can_probe and each.reference == "direct" for each in settings):
        return ()
    return tuple(str(role["name"]) for role in after if side_of(role) and not tagged_version_of(role))


def _cross_pairs(pairs: Sequence[PairVerdict]) -> tuple[CrossPair, ...]:
    return tuple(
        CrossPair(each.prefill_revision, each.decode_revision, each.verdict.outcome, each.verdict.sentence)
        for each in pairs
        if each.prefill_revision != each.decode_revision
    )


def _pair_facts(pair: PairVerdict) -> Json:
    return {
        "prefill": pair.prefill_revision,
        "decode": pair.decode_revision,
        "outcome": pair.verdict.outcome,
        "sentence": pair.verdict.sentence,
        "missing": [f"{each.factor}: {each.fact}" for each in pair.verdict.missing],
    }


def settings_of_pools(cluster: Cluster) -> dict[str, PoolSettings]:
    """UID of every present pool of a cluster → how it may be probed."""
    rows = Pool.objects.present().filter(cluster=cluster).values_list("uid", "settings")
    return {uid: read_settings(settings) for uid, settings in rows}


def pool_facts(pool: PoolView, settings: PoolSettings | None) -> Json:
    """What of a pool is a part of what is approved, and which images its router runs."""
    screener, router = pool.router.settings.screener, pool.router
    return {
        "name": pool.name,
        "uid": pool.uid,
        "router_config": router.config.digest,
        "screening": {
            "mode": screener.mode if screener else "",
            "required_roles": list(screener.required_roles) if screener else [],
            "strict_header": router.settings.strict_header,
            "sure": router.config.sure,
        },
        "router_images": list(router.image_ids),
        "routes": _weights(pool),
        "probes": probes_of(pool, settings),
    }


def probes_of(pool: PoolView, settings: PoolSettings | None) -> Json | None:
    """How the pool is proved: by which series, where, asking what, allowing what; None where it cannot be. Without a
    strict header of the router a probe cannot be sent to one revision."""
    roles = {pod.role for pod in pool.pods if pod.in_pool}
    if settings is None or not settings.can_probe or not pool.router.settings.strict_header:
        return None
    if roles != {"prefill", "decode"}:  # probes know these two halves, and need both
        return None
    kinds = ("probe",) if settings.reference == "none" else ("probe", "parity")
    return {
        "kinds": list(kinds),
        "url": settings.probe_url,
        "model": settings.model,
        "reference": settings.reference,
        "margin": str(settings.margin),
    }


def path_base(facts: Json) -> Json:
    """The part of a pool's facts that a vote rests on: another configuration, other weights or another way of proof
    make it stale."""
    return {key: facts[key] for key in ("name", "uid", "router_config", "screening", "routes", "probes")}


def pools_of_set(objects: PathObjects, set_name: str) -> list[PoolView]:
    """The pools that select pods of the set."""
    return [
        pool
        for path in paths_of_set(objects, set_name=set_name)
        for pool in path.pools
        if set_name in pool.sets
    ]


def _guard(pool: PoolView, settings: PoolSettings | None) -> Json:
    """By requests from the public side where its address is known, else by the documents of the routes."""
    seen = prove_guard(pool, settings) if settings is not None else None
    if seen is not None and (seen.verdict != "cannot-tell" or guard_was_seen(seen)):
        return {"verdict": seen.verdict, "sentence": seen.sentence, "by": "requests"}
    read = guard_of(pool.routes, pool.router.settings.strict_header)
    return {"verdict": read["verdict"], "sentence": read["sentence"], "by": "documents"}


def _screen(
    pool: PoolView, settings: PoolSettings | None, revision: str, roles: Sequence[str], set_name: str
) -> Screened:
    found = read_screening(pool, roles=roles, set_name=set_name)
    if found.state != "configured" or settings is None or not revision:
        return found
    return prove_screening(pool, settings, revision=revision)


def _pairs(
    before: Sequence[Mapping[str, Any]],
    after: Sequence[Mapping[str, Any]],
    revision: str,
    pods: Sequence[Mapping[str, Any]],
) -> tuple[PairVerdict, ...]:
    sides = [
        revision_facts("old", before, image_ids=_image_ids(pods, revision)),
        revision_facts("new", after),
    ]
    return judge_pairs(sides, allowed=True)


def _image_ids(pods: Sequence[Mapping[str, Any]], revision: str) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for pod in pods:
        labels = labels_of(pod)
        if revision and labels.get(SET_REVISION) == revision:
            ids = {
                str(each.get("imageID") or "")
                for each in (pod.get("status") or {}).get("containerStatuses") or ()
            }
            found.setdefault(labels.get(SET_ROLE, ""), set()).update(ids - {""})
    return {role: sorted(ids) for role, ids in found.items()}


def _weights(pool: PoolView) -> list[Json]:
    """Weights of every route rule that leads to the pool: a part of what is approved."""
    return [
        {
            "route": f"{route['metadata']['namespace']}/{route['metadata']['name']}",
            "rules": [
                [[str(ref.get("name")), int(ref.get("weight", 1))] for ref in rule.get("backendRefs") or ()]
                for rule in (route.get("spec") or {}).get("rules") or ()
            ],
        }
        for route in pool.routes
    ]
