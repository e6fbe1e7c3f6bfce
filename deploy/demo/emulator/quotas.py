"""Resource quotas of a namespace: a pod that would go beyond one is refused. Requests and numbers of pods only."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from deploy.demo.emulator.problems import forbidden
from deploy.demo.emulator.requests import Write
from deploy.demo.emulator.store import Store

Doc = dict[str, Any]
_UNITS = {
    "m": Decimal("0.001"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
}


class Quotas:
    """The quotas of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def check(self, write: Write) -> None:
        """Refuse a pod that does not fit. Raises ApiProblem 403."""
        if write.operation != "CREATE" or write.kind.ref != "pods" or write.object is None:
            return
        quotas = self._store.list("resourcequotas", write.namespace)
        if not quotas:
            return
        pods = [each for each in self._store.list("pods", write.namespace) if not _ended(each)]
        for quota in quotas:
            for name, limit in ((quota.get("spec") or {}).get("hard") or {}).items():
                asked = usage(write.object, name)
                used = sum((usage(pod, name) for pod in pods), Decimal(0))
                if asked and used + asked > quantity(limit):
                    said = f"requested: {name}={asked}, used: {name}={used}, limited: {name}={limit}"
                    why = f"exceeded quota: {quota['metadata']['name']}, {said}"
                    raise forbidden(write.kind, write.name, why)


def usage(pod: Doc, name: str) -> Decimal:
    """What a pod counts against a quota's key (``pods``, ``requests.cpu``, ``requests.nvidia.com/gpu``)."""
    if name in ("pods", "count/pods"):
        return Decimal(1)
    part, _, resource = name.partition(".")
    if part not in ("requests", "limits"):
        part, resource = "requests", name
    total = Decimal(0)
    for container in pod["spec"].get("containers") or ():
        resources = container.get("resources") or {}
        amount = (resources.get(part) or {}).get(resource)
        if amount is None and part == "requests":
            amount = (resources.get("limits") or {}).get(resource)
        total += quantity(amount or 0)
    return total


def quantity(text: object) -> Decimal:
    """A Kubernetes quantity as a number."""
    word = str(text)
    for unit in sorted(_UNITS, key=len, reverse=True):
        if word.endswith(unit):
            return Decimal(word[: -len(unit)]) * _UNITS[unit]
    return Decimal(word)


def _ended(pod: Doc) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
