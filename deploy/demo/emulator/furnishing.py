"""What a fresh emulated cluster has: namespaces, roles, nodes, the definitions of its custom kinds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deploy.demo.emulator import rights
from deploy.demo.emulator.store import Store, User
from deploy.demo.emulator.writes import stamp
from deploy.rig.identities import Identity
from deploy.rig.lws import account
from deploy.rig.nodes import NodePool

Doc = dict[str, Any]
SYSTEM = User("system:apiserver", ("system:masters",))
_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


def furnish(
    store: Store, identities: Sequence[Identity], pools: Sequence[NodePool], *, newer_sets: bool = False
) -> None:
    """Make all of it; what is there already stays."""
    docs = [
        *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in _NAMESPACES),
        *rights.shipped(),
        *(_admin(identity) for identity in identities if identity.cluster_admin),
        *account(),
        *(_ready(store, node) for pool in pools for node in pool.documents()),
    ]
    acting = store.acting_as(SYSTEM, manager="kube-apiserver")
    for doc in docs:
        kind = store.kinds.of_document(doc)
        metadata = doc["metadata"]
        if store.find(kind, metadata.get("namespace", ""), metadata["name"]) is None:
            acting.create(doc)


def _admin(identity: Identity) -> Doc:
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": identity.user}
    return rights.binding(f"emulator-{identity.name}", "cluster-admin", user)


def _ready(store: Store, node: Doc) -> Doc:
    now = stamp(store.clock())
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "kubelet is posting ready status",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    return {**node, "status": {**node["status"], "conditions": [condition]}}
