"""How fast and as which version the controllers play. All times are seconds."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field


@dataclass
class Times:
    """The times of a cluster without waits; a demo raises those that a person should see.

    ``start_s`` from a bound pod to its first status · ``ready_s`` from there to Ready · ``late_s``, ``period_s``
    those of the behaviours late, flicker and crash that name none · ``end_s`` what a deleted pod takes ·
    ``job_s`` what a pod of a Job runs · ``requeue_s`` between two looks of a controller that waits · ``back_off_s``
    after a first error, doubled up to ``back_off_cap_s`` · ``between_writes_s`` before each write of a program ·
    ``restart_s`` what a crashed program stays away · ``node_grace_s`` from a lost kubelet to NotReady ·
    ``eviction_s`` from there to the end of its pods that name no time of their own.
    """

    start_s: float = 0.0
    ready_s: float = 0.0
    late_s: float = 5.0
    period_s: float = 3.0
    end_s: float = 0.0
    job_s: float = 0.0
    requeue_s: float = 1.0
    back_off_s: float = 0.005
    back_off_cap_s: float = 1000.0
    between_writes_s: float = 0.0
    restart_s: float = 1.0
    node_grace_s: float = 40.0
    eviction_s: float = 300.0


@dataclass
class Settings:
    """``times`` see there · ``slices`` False plays the manager of 0.9.0, True a newer one: slices, roles scaled from
    outside, status · ``pod_cidr`` the first pod address with its prefix · ``programs`` images (without tag) whose
    pods the runner plays (deploy/rig/runner)."""

    times: Times = field(default_factory=Times)
    slices: bool = False
    pod_cidr: str = "127.201.0.1/16"
    programs: Collection[str] = ()
