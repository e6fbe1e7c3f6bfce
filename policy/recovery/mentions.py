"""Which ConfigMaps and Secrets the pods of a set take something from, read from its role templates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Mentions:
    """Names, each with the roles that mention it."""

    config_maps: Mapping[str, tuple[str, ...]]
    secrets: Mapping[str, tuple[str, ...]]


def find_mentions(roles: Sequence[Json]) -> Mentions:
    """Every ConfigMap and Secret that a pod of these roles mounts or takes variables or pull rights from."""
    found: dict[str, dict[str, list[str]]] = {"configMap": {}, "secret": {}}
    for role in roles:
        template = (role.get("spec") or {}).get("leaderWorkerTemplate") or {}
        for kind in ("leaderTemplate", "workerTemplate"):
            for what, name in pod_mentions((template.get(kind) or {}).get("spec") or {}):
                users = found[what].setdefault(name, [])
                if role["name"] not in users:
                    users.append(str(role["name"]))
    return Mentions(*({name: tuple(users) for name, users in sorted(found[what].items())} for what in found))


def pod_mentions(spec: Json) -> Iterator[tuple[str, str]]:
    """(`configMap` or `secret`, name) for each mention in a pod spec."""
    for volume in spec.get("volumes") or ():
        sources = [volume, *((volume.get("projected") or {}).get("sources") or ())]
        for source in sources:
            if name := (source.get("configMap") or {}).get("name"):
                yield "configMap", name
            secret = source.get("secret") or {}
            if name := secret.get("secretName") or secret.get("name"):
                yield "secret", name
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        yield from _variables(container)
    for each in spec.get("imagePullSecrets") or ():
        if each.get("name"):
            yield "secret", each["name"]


def _variables(container: Json) -> Iterator[tuple[str, str]]:
    for each in container.get("env") or ():
        origin = each.get("valueFrom") or {}
        if name := (origin.get("configMapKeyRef") or {}).get("name"):
            yield "configMap", name
        if name := (origin.get("secretKeyRef") or {}).get("name"):
            yield "secret", name
    for each in container.get("envFrom") or ():
        if name := (each.get("configMapRef") or {}).get("name"):
            yield "configMap", name
        if name := (each.get("secretRef") or {}).get("name"):
            yield "secret", name
