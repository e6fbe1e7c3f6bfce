"""What is known about a set and a planned change when its hazards are looked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from policy.rollout.hazards_path import PathExam
from policy.rollout.holds import PlanView
from policy.rollout.pace import Pace, resolve_pace
from policy.rollout.scope import ChangeScope


@dataclass(frozen=True, slots=True)
class PodFacts:
    """Of the planned pods of one role, as far as their template says. Seconds; None where nothing says.

    `images` are those of all containers, `startup_seconds` is how long an engine may take to load before it
    is killed, `grace_seconds` how long a pod may take to end, `pre_stop_seconds` what its hook uses of that.
    """

    images: tuple[str, ...] = ()
    startup_seconds: int | None = None
    grace_seconds: int | None = None
    pre_stop_seconds: int = 0


@dataclass(frozen=True, slots=True)
class RoleFacts:
    """One role. Counts are groups per slice, of the slice that has the fewest.

    `live_groups` is what the live revision asks for (None: it has no such role), `ready_groups` what of it is
    ready, `target_groups` what the plan asks for (None: the role is removed). `pace_written` is the block
    maxSurge/maxUnavailable as the plan's author wrote it, before the API server fills it in (None: no block).
    `load_seen_seconds` is the longest load seen of this role, `drain_seconds` what its engine takes to stop,
    `longest_stream_seconds` the longest answer it may still be sending.
    """

    name: str
    live_groups: int | None
    ready_groups: int
    target_groups: int | None
    pace_written: Mapping[str, object] | None = None
    size: int = 1
    external: bool = False
    pods: PodFacts = PodFacts()
    load_seen_seconds: int | None = None
    drain_seconds: int = 0
    longest_stream_seconds: int | None = None

    @property
    def pace(self) -> Pace:
        """The resolved pace; of a removed role the controller's default."""
        if self.target_groups is None:
            return resolve_pace(None, 0)
        return resolve_pace(self.pace_written, self.target_groups)


@dataclass(frozen=True, slots=True)
class ScalerFacts:
    """One scaler on the set: `Kind name` of itself and of what it aims at, how it is paused, or why it cannot be.

    `role` is empty where it aims at the set. `of_revision`: it names a LeaderWorkerSet of the live revision.
    """

    name: str
    target: str
    role: str = ""
    way: str = ""
    problem: str = ""
    of_revision: bool = False


@dataclass(frozen=True, slots=True)
class FitFacts:
    """Whether the fullest row can be placed. `first_group` and `sentence` name what cannot or is unknown."""

    verdict: Literal["fits", "does-not-fit", "unknown"]
    first_group: str = ""
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """A set and a planned change.

    `roles` are the planned roles in their order, then those of the live revision that the plan removes; the
    rows of `view` have the same order (None where nothing rolls out). `live_revisions` are labels of
    revisions that ask for groups; `rollout_in_flight` is true while the set is moving or somebody's operation
    holds it. `reconcile_errors` are the controller's present errors about this set. `prv_users` name what
    refers to a `-prv` Service of it, `writers` who else writes its roles. `lws_version` is None when unknown.
    """

    set_name: str
    roles: tuple[RoleFacts, ...]
    scope: ChangeScope
    view: PlanView | None
    live_revisions: tuple[str, ...]
    rollout_in_flight: bool = False
    lws_version: str | None = None
    slices_before: int = 1
    slices_after: int = 1
    reconcile_errors: tuple[str, ...] = ()
    prv_users: tuple[str, ...] = ()
    writers: tuple[str, ...] = ()
    scalers: tuple[ScalerFacts, ...] = ()
    fit: FitFacts | None = None
    path: PathExam | None = None


def read_pod_facts(role: Mapping[str, Any]) -> PodFacts:
    """PodFacts of a role as in `spec.roles`: leader and worker together, the tightest time counts."""
    group = (role.get("spec") or {}).get("leaderWorkerTemplate") or {}
    templates = [group[key] for key in ("leaderTemplate", "workerTemplate") if group.get(key)]
    pods = [template.get("spec") or {} for template in templates]
    containers = [container for pod in pods for container in pod.get("containers") or []]
    every = [*containers, *(each for pod in pods for each in pod.get("initContainers") or [])]
    images = dict.fromkeys(str(each["image"]) for each in every if each.get("image"))
    startups = [seconds for each in containers if (seconds := _startup_seconds(each)) is not None]
    graces = [int(pod.get("terminationGracePeriodSeconds") or 30) for pod in pods]
    return PodFacts(
        images=tuple(images),
        startup_seconds=min(startups, default=None),
        grace_seconds=min(graces, default=None),
        pre_stop_seconds=max(map(_pre_stop_seconds, containers), default=0),
    )


def _startup_seconds(container: Mapping[str, Any]) -> int | None:
    """How long the container may be silent: by startup probe, else liveness probe (Kubernetes defaults)."""
    probe = container.get("startupProbe") or container.get("livenessProbe")
    if not isinstance(probe, Mapping):
        return None
    delay, tries, period = (
        probe.get("initialDelaySeconds") or 0,
        probe.get("failureThreshold") or 3,
        probe.get("periodSeconds") or 10,
    )
    return int(delay) + int(tries) * int(period)


def _pre_stop_seconds(container: Mapping[str, Any]) -> int:
    """What the hook is known to use: a sleep action, or a sleep command in its program."""
    hook = (container.get("lifecycle") or {}).get("preStop") or {}
    slept = int((hook.get("sleep") or {}).get("seconds") or 0)
    return max([slept, *_sleeps((hook.get("exec") or {}).get("command") or [])])


def _sleeps(command: list[str]) -> Iterator[int]:
    for found in re.finditer(r"\bsleep\s+([0-9]+)\b", " ".join(map(str, command))):
        yield int(found[1])
