"""Groups of other revisions beside the one that should serve alone: who they are, how long they are waited for, and
what is done about those that the controller has forgotten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from controlplane.holds.live import LiveSet
from controlplane.holds.steadiness import same_since
from controlplane.kube.client import Kube
from controlplane.kube.resources import LEADER_WORKER_SETS
from policy.rollout.box import Key

Json = dict[str, Any]

TAKEN_UP_AFTER = 15.0  # seconds, above any lag of a controller's cache
LEAK_AFTER = 20.0  # seconds that another revision has kept its groups beside the one that serves whole


def others_of(live: LiveSet, label: str) -> list[Key]:
    """Sets of other revisions that have groups, in order."""
    return [
        key
        for key, child in sorted(live.children.items())
        if key[1] != label and (child.wanted or child.ready)
    ]


def not_taken_up(live: LiveSet, label: str, *, waited: float) -> list[str]:
    """Names of the empty sets of other revisions that the controller has still to drop; none after TAKEN_UP_AFTER
    seconds.

    Where nothing has been drained yet, all may look well before the controller has seen the roles just written; let go
    now, it would still raise other groups once. It deletes the empty sets of a revision as soon as it goes by another
    one (lws v0.9.0, cleanupDrainedLWS): that is how it shows. A controller that keeps them is not waited for for long.
    """
    if waited >= TAKEN_UP_AFTER:
        return []
    return [child.name for key, child in sorted(live.children.items()) if key[1] != label]


def draining(
    live: LiveSet, others: Sequence[Key], *, kept: Mapping[str, Any] | None, step: int | str, now: datetime
) -> Json | None:
    """What to remember while these others go; None where they have stood the same for LEAK_AFTER seconds, so that the
    controller, which drains them by itself, must have forgotten them. `kept` is what was remembered last, by any step.
    """
    sign = [[live.children[key].name, live.children[key].wanted] for key in others]
    since, remember = same_since(kept, step=step, sign=sign, now=now)
    ending = not any(live.children[key].wanted for key in others)  # pods may take their time
    return remember if ending or (now - since).total_seconds() < LEAK_AFTER else None


def scale_to_zero(kube: Kube, live: LiveSet, label: str) -> list[str]:
    """Scale to 0 what the controller has left behind, each set under the resourceVersion just read; their names.
    Raises KubeError."""
    scaled = []
    for key in others_of(live, label):
        child = live.children[key]
        if child.wanted:
            metadata = child.body["metadata"]
            kube.patch(
                LEADER_WORKER_SETS,
                child.name,
                metadata["namespace"],
                {"metadata": {"uid": metadata["uid"]}, "spec": {"replicas": 0}},
                resource_version=metadata["resourceVersion"],
            )
            scaled.append(child.name)
    return scaled
