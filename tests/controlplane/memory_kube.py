"""What worlds in memory share that stand in for `Kube`: objects by kind, namespace and name, and reading one."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Self

from controlplane.kube.errors import ObjectMissing
from controlplane.kube.resources import Resource

Json = dict[str, Any]
At = tuple[str, str, str]  # kind, namespace, name


class MemoryKube:
    """An API server that answers at once; who derives from it says how it lists and writes."""

    unanswered = False

    def __init__(self) -> None:
        self.objects: dict[At, Json] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def find(self, resource: Resource, name: str, namespace: str | None = None) -> Json | None:
        """One object or None."""
        found = self.objects.get((resource.kind, namespace or "", name))
        return deepcopy(found) if found else None

    def get(self, resource: Resource, name: str, namespace: str | None = None) -> Json:
        """One object."""
        found = self.find(resource, name, namespace)
        if found is None:
            raise ObjectMissing(f"{name} not found", status=404, details={"name": name})
        return found
