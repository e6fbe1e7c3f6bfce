"""Whether what was seen of the path at a hold is about the groups that serve now: pods are replaced under one name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from controlplane.fleet.names import SET_NAME, SET_REVISION, WORKER_INDEX, labels_of
from controlplane.holds.steadiness import pod_sign, same_since
from controlplane.kube.resources import PODS
from controlplane.operations.contract import StepContext, Wait
from controlplane.paths.models import ProbeSeries
from controlplane.paths.objects import is_ready, read_objects
from controlplane.paths.probing import groups_of
from controlplane.upgrades.path_exam import pools_of_set
from controlplane.upgrades.steps.memory import memory_of

Json = dict[str, Any]
LOOK_EVERY = 5.0


def uncovered_pods(context: StepContext, at: str) -> list[Json]:
    """Leader pods of the new revision that serve behind a pool and that no probe series of the evidence at this place
    was about, read live; none where the path was not examined there. Raises KubeError."""
    evidence = (context.operation.memory.get("path_evidence") or {}).get(at) or {}
    covered = _covered(evidence.get("series") or ())
    if not covered:
        return []
    memory = memory_of(context)
    selector = f"{SET_NAME}={memory.name},{SET_REVISION}={memory.new}"
    pods = {
        str(pod["metadata"]["uid"]): pod
        for pod in context.kube.list(PODS, memory.namespace, label_selector=selector).items
        if is_ready(pod) and labels_of(pod).get(WORKER_INDEX, "0") == "0"
    }
    if pods.keys() <= set.intersection(*covered.values()):
        return []  # the usual answer, for one call; which of the others a probe can reach takes the whole path
    pools = pools_of_set(read_objects(context.kube, memory.namespace), memory.name)
    found = {
        group.uid
        for pool in pools
        for group in groups_of(pool, memory.new)
        if pool.name in covered and group.uid not in covered[pool.name]
    }
    return [pods[uid] for uid in sorted(found & pods.keys())]


def _covered(series: Iterable[Json]) -> dict[str, set[str]]:
    """Pool → UIDs of the pods that its probe series was about. A series that is gone was about nobody."""
    names = {int(each["series"]): str(each["pool"]) for each in series if each["kind"] == "probe"}
    found: dict[str, set[str]] = {name: set() for name in names.values()}
    for key, groups in ProbeSeries.objects.filter(pk__in=names).values_list("pk", "plan__groups"):
        found[names[key]] |= {str(uid) for *_, uid in groups or ()}
    return found


def until_steady(context: StepContext, pods: list[Json]) -> Wait | None:
    """To wait until these pods have stayed as they are for the plan's stable time; None where they have: a group that
    comes and goes is not probed each time."""
    stable_for = float(context.operation.memory["stable_for"])
    since, kept = same_since(
        context.operation.memory.get("uncovered"),
        step=context.step_id,
        sign=[pod_sign(pod) for pod in pods],
        now=context.now,
    )
    stood = (context.now - since).total_seconds()
    if stood >= stable_for:
        return None
    return Wait(
        min(LOOK_EVERY, max(0.2, stable_for - stood)),
        f"{names_of(pods)} to stay ready for {stable_for:g} s; then the path is looked at again, because probes have"
        f" not seen {'it' if len(pods) == 1 else 'them'}",
        remember={"uncovered": kept},
    )


def names_of(pods: list[Json]) -> str:
    """The first few by name, and how many more."""
    names = [str(pod["metadata"]["name"]) for pod in pods]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
