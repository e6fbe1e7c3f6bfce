"""Nodes, pods and groups of the fit tests, with defaults that most tests do not care about."""

from __future__ import annotations

from typing import Any

from policy.topology.facts import Demand, Group, Node, Pod

GPU = "nvidia.com/gpu"
ZONE = "topology.kubernetes.io/zone"


def demand(gpus: int = 8, **more: Any) -> Demand:
    amounts = {GPU: gpus, "cpu": 1000, "pods": 1, **more.pop("asks", {})}
    return Demand(requests=tuple(sorted((k, v) for k, v in amounts.items() if v)), **more)


def node(name: str, gpus: int = 8, zone: str | None = None, pods: int = 110, **more: Any) -> Node:
    labels = {"kubernetes.io/hostname": name, **({ZONE: zone} if zone else {}), **more.pop("labels", {})}
    return Node(name, labels, {GPU: gpus, "cpu": 64_000, "memory": 2**40, "pods": pods}, **more)


def group(index: int, size: int = 1, role: str = "decode", pod: Demand | None = None, **more: Any) -> Group:
    return Group(role, index, "serving", (pod or demand(),) * size, **more)


def groups(count: int, **more: Any) -> list[Group]:
    return [group(i, **more) for i in range(count)]


def standing(name: str, on: str | None, pod: Demand | None = None, **more: Any) -> Pod:
    return Pod(name, more.pop("namespace", "serving"), pod or demand(), on, **more)
