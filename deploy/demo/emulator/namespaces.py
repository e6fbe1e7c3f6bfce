"""The life of namespaces: a default service account when they begin, their contents away when they end."""

from __future__ import annotations

from typing import Any

from deploy.demo.emulator.memory import Change
from deploy.demo.emulator.parts import Pace
from deploy.demo.emulator.problems import ApiProblem
from deploy.demo.emulator.store import Acting, Store, service_account

Doc = dict[str, Any]
_RETRY_S = 1.0


class Namespaces:
    """A part."""

    name = "namespace-controller"

    async def run(self, store: Store, pace: Pace) -> None:
        """Work until cancelled."""
        acting = store.acting_as(service_account("kube-system", "namespace-controller"))
        with store.subscribe() as changes:
            names = {str(doc["metadata"]["name"]) for doc in store.list("namespaces")}
            while True:
                await pace.going()
                ending = {name for name in names if not _tend(acting, name)}
                found = await changes.next(_RETRY_S if ending else None)
                names = ending | {space for change in found if (space := _about(change))}


def _about(change: Change) -> str:
    """The namespace that a change makes worth a look: its own beginning or end, or its service account gone."""
    metadata = change.new["metadata"]
    if change.kind.ref == "namespaces":
        return str(metadata["name"])
    if change.kind.ref == "serviceaccounts" and change.type == "DELETED":
        return str(metadata["namespace"])
    return ""


def _tend(acting: Acting, name: str) -> bool:
    """Bring one namespace on its way; False when it must be looked at again."""
    namespace = acting.find("namespaces", "", name)
    if namespace is None:
        return True
    if "deletionTimestamp" not in namespace["metadata"]:
        if acting.find("serviceaccounts", name, "default") is None:
            account = {"apiVersion": "v1", "kind": "ServiceAccount"}
            acting.create({**account, "metadata": {"name": "default", "namespace": name}})
        return True
    if _empty(acting, name):
        acting.store.writes.finalize(name, acting.user)
        return True
    return False


def _empty(acting: Acting, name: str) -> bool:
    """Delete what is in a namespace; whether nothing is left."""
    left = 0
    for kind in acting.store.kinds:
        if not kind.namespaced:
            continue
        for doc in acting.list(kind, name):
            try:
                acting.delete(kind, name, doc["metadata"]["name"])
            except ApiProblem:
                pass
        left += len(acting.list(kind, name))
    return left == 0
