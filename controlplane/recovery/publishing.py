"""Which combinations go into the cluster as copies: the last two of the set, each in its place."""

from __future__ import annotations

from typing import Any

from controlplane.fleet.models import Cluster
from controlplane.kube.client import Kube
from controlplane.operations.contract import Done, Outcome, StepContext
from controlplane.recovery.copies import write_copy
from controlplane.recovery.models import Combination
from policy.recovery.copies import PLACES

Json = dict[str, Any]


def publish_copies(context: StepContext) -> Outcome:
    """A step after a capture: the last two combinations of the operation's set stand in the cluster."""
    memory = context.operation.memory
    names = publish_last(context.kube, context.cluster, namespace=memory["namespace"], name=memory["name"])
    return Done(result={"written": names})


def publish_last(kube: Kube, cluster: Cluster, *, namespace: str, name: str) -> list[str]:
    """Write the copies that are not there yet, older one first; names of what was written."""
    rows = Combination.objects.of_set(cluster=cluster, namespace=namespace, name=name)[:PLACES]
    written: list[str] = []
    for found in reversed(list(rows)):
        written += write_copy(kube, found.document, number=found.number, about=about(found))
    return written


def about(found: Combination) -> Json:
    """What the index of a copy says beside its digest."""
    return {
        "state": found.state,
        "revision": found.revision,
        "captured_at": found.captured_at.isoformat(),
        "reason": found.reason[:300],
        "set": f"{found.namespace}/{found.name}",
    }
