"""Whether what was seen of the path at a hold is about the groups that serve now: pods are replaced under one name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.fleet.names import SET_ROLE, WORKER_INDEX, labels_of, slice_of
from controlplane.holds.live import read_pods
from controlplane.holds.steadiness import pod_sign, same_since
from controlplane.operations.contract import StepContext, Wait
from controlplane.paths.models import ProbeSeries
from controlplane.paths.objects import is_ready, read_objects, restarts_of
from controlplane.paths.probing import groups_of
from controlplane.upgrades.path_exam import pools_of_set
from controlplane.upgrades.steps.memory import Memory, memory_of

Json = dict[str, Any]
Signs = dict[str, int | None]  # UID of a pod → restarts of its containers; None where nobody wrote them down
LOOK_EVERY = 5.0


@dataclass(frozen=True, slots=True)
class Cover:
    """Leader pods of the new revision that serve behind a pool and that no probe series was about; and roles whose
    ready leaders are fewer, or more, than the row says, in words."""

    unseen: list[Json]
    fewer: str = ""
    more: str = ""


def cover_of(context: StepContext, at: str, slices: Sequence[str], row: int) -> Cover | None:
    """What of the groups that serve now the evidence at this place is about, read live; None where the path was not
    examined there. A container that restarted since is another engine. Raises KubeError."""
    evidence = (context.operation.memory.get("path_evidence") or {}).get(at) or {}
    covered = _covered(evidence.get("series") or ())
    if not covered:
        return None
    memory = memory_of(context)
    pods = {
        str(pod["metadata"]["uid"]): pod
        for pod in read_pods(context.kube, memory.namespace, memory.name, memory.new)
        if is_ready(pod) and labels_of(pod).get(WORKER_INDEX, "0") == "0"
    }
    fewer, more = _off(memory, pods.values(), slices, row)
    return Cover(_unseen(context, memory, pods, covered), fewer, more)


def _off(memory: Memory, pods: Iterable[Json], slices: Sequence[str], row: int) -> tuple[str, str]:
    """Roles with fewer and with more ready leaders than the row says. From the pods: while the LeaderWorkerSet manager
    is away, its status goes on counting groups that are gone."""
    ready = Counter((slice_of(pod), labels_of(pod).get(SET_ROLE, "")) for pod in pods)
    _, wanted = memory.counts_at(row)
    said: dict[bool, list[str]] = {True: [], False: []}
    for name in slices:
        for role, count in wanted.items():
            if (found := ready[(name, role)]) != count:
                said[found < count].append(f"{role} of {memory.new} has {found} of {count} groups ready")
    return "; ".join(said[True]), "; ".join(said[False])


def _unseen(
    context: StepContext, memory: Memory, pods: Mapping[str, Json], covered: Mapping[str, Signs]
) -> list[Json]:
    signs = [(uid, restarts_of(pod)) for uid, pod in pods.items()]
    if all(_is_seen(each, *sign) for each in covered.values() for sign in signs):
        return []  # the usual answer, for one call; which of the others a probe can reach takes the whole path
    pools = pools_of_set(read_objects(context.kube, memory.namespace), memory.name)
    found = {
        group.uid
        for pool in pools
        for group in groups_of(pool, memory.new)
        if pool.name in covered and not _is_seen(covered[pool.name], group.uid, group.restarts)
    }
    return [pods[uid] for uid in sorted(found & pods.keys())]


def _covered(series: Iterable[Json]) -> dict[str, Signs]:
    """Pool → the pods that its probe series was about. A series that is gone was about nobody."""
    names = {int(each["series"]): str(each["pool"]) for each in series if each["kind"] == "probe"}
    found: dict[str, Signs] = {name: {} for name in names.values()}
    for key, groups in ProbeSeries.objects.filter(pk__in=names).values_list("pk", "plan__groups"):
        # Plans of older versions have no restarts.
        found[names[key]] |= {str(uid): next(iter(more), None) for _, _, _, uid, *more in groups or ()}
    return found


def _is_seen(signs: Signs, uid: str, restarts: int) -> bool:
    return uid in signs and signs[uid] in (None, restarts)


def until_counted(cover: Cover) -> Wait | None:
    """To wait for a group that is not there; and, once probes have seen all that serve, until none is too many."""
    off = cover.fewer or (cover.more if not cover.unseen else "")
    return Wait(LOOK_EVERY, f"the pods of this row: {off}", person=True) if off else None


def until_steady(context: StepContext, pods: list[Json]) -> Wait | None:
    """To wait until these pods have stayed as they are for the plan's stable time; None where they have, or there are
    none: a group that comes and goes is not probed each time."""
    if not pods:
        return None
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
