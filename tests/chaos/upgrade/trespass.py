"""What others do to a set under a running upgrade, so that its rare steps have something to do.

Each deed returns whether it could be done yet; it is done once.
"""

from __future__ import annotations

from typing import Any

from controlplane.operations.models import Operation
from deploy.rig import Api, workloads

Json = dict[str, Any]
GHOST = "ghost"


def tear_open(client: Api, operation: Operation) -> bool:
    """Break-glass lets another revision into the hold: it is repaired."""
    memory = operation.memory
    path = f"/api/v1/namespaces/lockstep/configmaps/hold-{memory['namespace']}.{memory['name']}"
    client.patch(path, {"data": {"ceil.0.00000000.prefill": "1"}})
    return True


def run_ahead(client: Api, operation: Operation) -> bool:
    """Break-glass takes an old group away that the hold keeps: what stands is adopted."""
    name = f"{operation.memory['name']}-{operation.memory['old']}-prefill"
    client.patch(_path(operation, name), {"spec": {"replicas": 1}})
    return True


def break_the_start(client: Api, operation: Operation) -> bool:
    """Somebody deletes one of the sets that the controller has just made: the start is cured, soon."""
    new = [name for name in _children(client, operation) if operation.memory["old"] not in name]
    if len(new) < 2:
        return False
    row = Operation.objects.get(pk=operation.pk)
    Operation.objects.filter(pk=operation.pk).update(memory={**row.memory, "init_patience": 1})
    client.delete(_path(operation, next(name for name in new if name.endswith("-decode"))))
    return True


def leave_a_ghost(client: Api, operation: Operation) -> bool:
    """A set in a role that nobody knows, once the way back is gone: its groups are scaled to 0."""
    children = _children(client, operation)
    old, name = operation.memory["old"], operation.memory["name"]
    if any(child["spec"]["replicas"] for key, child in children.items() if old not in key):
        return False
    body = children[f"{name}-{old}-decode"]
    strange = {workloads.ROLE_LABEL: GHOST, workloads.REVISION_LABEL: "deadbeef"}
    metadata = {
        "name": f"{name}-deadbeef-{GHOST}",
        "namespace": operation.memory["namespace"],
        "labels": {**body["metadata"]["labels"], **strange},
        "ownerReferences": body["metadata"]["ownerReferences"],
    }
    kind = {"apiVersion": workloads.LWS_GROUP, "kind": "LeaderWorkerSet"}
    client.create({**kind, "metadata": metadata, "spec": body["spec"]})
    return True


def _children(client: Api, operation: Operation) -> dict[str, Json]:
    found = workloads.lws_of(client, operation.memory["namespace"], operation.memory["name"])
    return {child["metadata"]["name"]: child for child in found}


def _path(operation: Operation, name: str) -> str:
    namespace = operation.memory["namespace"]
    return f"/apis/{workloads.LWS_GROUP}/namespaces/{namespace}/leaderworkersets/{name}"
