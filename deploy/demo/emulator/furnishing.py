"""What a fresh emulated cluster has: namespaces, roles, nodes, the definitions of its custom kinds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deploy.demo.emulator import rights
from deploy.demo.emulator.store import Store, User
from deploy.demo.emulator.writes import stamp
from deploy.rig.identities import Identity
from deploy.rig.lws import ROLE, account
from deploy.rig.nodes import NodePool

Doc = dict[str, Any]
SYSTEM = User("system:apiserver", ("system:masters",))
_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


def furnish(store: Store, identities: Sequence[Identity], pools: Sequence[NodePool]) -> None:
    """Make all of it; what is there already stays."""
    docs = [
        *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in _NAMESPACES),
        *store.definitions,
        *rights.shipped(),
        *(_admin(identity) for identity in identities if identity.cluster_admin),
        *account(),
        _manager_role(),
        *(_ready(store, node) for pool in pools for node in pool.documents()),
    ]
    acting = store.acting_as(SYSTEM, manager="kube-apiserver")
    for doc in docs:
        kind = store.kinds.of_document(doc)
        metadata = doc["metadata"]
        if store.find(kind, metadata.get("namespace", ""), metadata["name"]) is None:
            acting.create(doc)


def _manager_role() -> Doc:
    """What the manager of LeaderWorkerSets may do: its controllers run under its own account, not as administrators."""
    groups = "disaggregatedset.x-k8s.io", "leaderworkerset.x-k8s.io"
    write = ["create", "delete", "get", "list", "patch", "update", "watch"]
    change = ["get", "patch", "update"]
    rules: list[tuple[list[str], list[str], list[str]]] = [
        ([""], ["events"], ["create", "patch", "update", "get", "list", "watch"]),
        ([""], ["pods"], write),
        ([""], ["services"], write),
        ([""], ["nodes"], ["get", "list", "watch"]),
        (["apps"], ["statefulsets", "controllerrevisions"], write),
        (["apps"], ["statefulsets/status", "statefulsets/finalizers"], change),
        ([groups[0]], ["disaggregatedsets", "disaggregatedsetrolescalers"], write),
        ([groups[0]], ["disaggregatedsets/status", "disaggregatedsetrolescalers/status"], change),
        ([groups[1]], ["leaderworkersets"], write),
        ([groups[1]], ["leaderworkersets/status", "leaderworkersets/finalizers"], change),
    ]
    listed = [{"apiGroups": of, "resources": what, "verbs": verbs} for of, what, verbs in rules]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": ROLE},
        "rules": listed,
    }


def renew_identity(store: Store) -> None:
    """A started server: its Lease is renewed, and nobody remembers what was before."""
    acting = store.acting_as(SYSTEM, manager="kube-apiserver")
    name, space = "apiserver-emulator", "kube-system"
    now = store.clock().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if store.find("leases.coordination.k8s.io", space, name) is None:
        metadata = {"name": name, "namespace": space}
        acting.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata})
    acting.patch("leases.coordination.k8s.io", space, name, {"spec": {"renewTime": now}})
    store.memory.forget()


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
