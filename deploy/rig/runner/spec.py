"""What a container says about its program: environment, arguments, ports. Pure: documents in, values out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deploy.rig.runner.volumes import NotYet, Sources, parts_of

Doc = dict[str, Any]
_CONFIG_ERROR = "CreateContainerConfigError"
_KINDS = {
    "configMapKeyRef": "ConfigMap",
    "secretKeyRef": "Secret",
    "configMapRef": "ConfigMap",
    "secretRef": "Secret",
}


def references(pod: Doc) -> set[tuple[str, str]]:
    """Every ConfigMap and Secret that the pod's volumes and environments name."""
    found = {(kind, name) for volume in pod["spec"].get("volumes", []) for kind, name, _ in parts_of(volume)}
    for container in pod["spec"]["containers"]:
        entries = [each.get("valueFrom", {}) for each in container.get("env", [])]
        for entry in [*entries, *container.get("envFrom", [])]:
            found |= {(kind, entry[key]["name"]) for key, kind in _KINDS.items() if key in entry}
    return found


def environment(pod: Doc, container: Doc, sources: Sources) -> dict[str, str]:
    """The container's own variables in order, ``$(NAME)`` expanded; NotYet where one has no value."""
    values: dict[str, str] = {}
    for entry in container.get("envFrom", []):
        for key, kind in _KINDS.items():
            if key not in entry:
                continue
            data = sources.get((kind, entry[key]["name"]))
            if data is None and not entry[key].get("optional"):
                raise NotYet(_CONFIG_ERROR, f"{kind.lower()} {entry[key]['name']!r} not found")
            values |= {entry.get("prefix", "") + name: text.decode() for name, text in (data or {}).items()}
    for entry in container.get("env", []):
        value = _value(pod, entry, sources)
        if value is not None:
            values[entry["name"]] = expanded(value, values)
    return values


def _value(pod: Doc, entry: Doc, sources: Sources) -> str | None:
    source = entry.get("valueFrom")
    if not source:
        return str(entry.get("value", ""))
    if "fieldRef" in source:
        return field_value(pod, source["fieldRef"]["fieldPath"])
    for key in ("configMapKeyRef", "secretKeyRef"):
        if key in source:
            name, wanted = source[key]["name"], source[key]["key"]
            data = sources.get((_KINDS[key], name))
            if data is not None and wanted in data:
                return data[wanted].decode()
            if source[key].get("optional"):
                return None
            raise NotYet(_CONFIG_ERROR, f"couldn't find key {wanted} in {_KINDS[key]} {name}")
    raise NotYet(_CONFIG_ERROR, f"the rig does not know the source of {entry['name']}: {', '.join(source)}")


def field_value(pod: Doc, path: str) -> str:
    """A field of the downward API; NotYet for one that the rig does not know."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    keyed = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
    if keyed:
        return str((metadata.get(keyed[1]) or {}).get(keyed[2], ""))
    known: dict[str, Callable[[], Any]] = {
        "metadata.name": lambda: metadata["name"],
        "metadata.namespace": lambda: metadata["namespace"],
        "metadata.uid": lambda: metadata["uid"],
        "spec.nodeName": lambda: spec.get("nodeName", ""),
        "spec.serviceAccountName": lambda: spec.get("serviceAccountName", ""),
        "status.podIP": lambda: status.get("podIP", ""),
        "status.podIPs": lambda: ",".join(each["ip"] for each in status.get("podIPs", [])),
        "status.hostIP": lambda: status.get("hostIP", ""),
    }
    if path not in known:
        raise NotYet(_CONFIG_ERROR, f"the rig does not know the field {path}")
    return str(known[path]())


def expanded(text: str, values: Mapping[str, str]) -> str:
    """``$(NAME)`` replaced where NAME is known; ``$$(NAME)`` means the text ``$(NAME)``."""

    def replace(found: re.Match[str]) -> str:
        if found[0].startswith("$$"):
            return found[0][1:]
        return values.get(found[1], found[0])

    return re.sub(r"\$?\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)", replace, text)


def arguments(container: Doc, values: Mapping[str, str]) -> list[str]:
    """What follows the program: a command's own arguments, then ``args``."""
    given = [*container.get("command", [])[1:], *container.get("args", [])]
    return [expanded(each, values) for each in given]


def pod_ports(args: Sequence[str], port_flags: Mapping[int, str]) -> dict[str, int]:
    """Flag -> the port that the pod is to have by it: the argument's value, else the program's usual one."""
    return {flag: _given(args, flag) or usual for usual, flag in port_flags.items()}


def _given(args: Sequence[str], flag: str) -> int | None:
    name = flag.lstrip("-")
    for index, argument in enumerate(args):
        key, equals, value = argument.partition("=")
        if not key.startswith("-") or key.lstrip("-") != name:
            continue
        if not equals and index + 1 < len(args):
            value = args[index + 1]
        return int(value) if value.isdigit() else None
    return None


def with_ports(args: Sequence[str], local: Mapping[str, int]) -> list[str]:
    """The arguments with every flag of ``local`` set to its local port, replaced or added."""
    names = {flag.lstrip("-") for flag in local}
    kept: list[str] = []
    skip = False
    for argument in args:
        if skip:
            skip = False
            continue
        key, equals, _ = argument.partition("=")
        if key.startswith("-") and key.lstrip("-") in names:
            skip = not equals
            continue
        kept.append(argument)
    return [*kept, *(f"{flag}={port}" for flag, port in local.items())]
