"""The machines of the rig: GPU nodes with topology labels, made as documents."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
RACK = "topology.kubernetes.io/rack"  # the llm-d router's default rack key; not a Kubernetes standard
CLIQUE = "nvidia.com/gpu.clique"


@dataclass(frozen=True)
class NodePool:
    """``count`` equal nodes of ``gpus`` GPUs; racks of ``rack_size`` nodes, zones of ``zone_size`` nodes."""

    count: int = 8
    gpus: int = 8
    cpu: str = "192"
    memory: str = "2Ti"
    pods: int = 110
    rack_size: int = 2
    zone_size: int = 4
    product: str = "NVIDIA-H200"
    prefix: str = "gpu"
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[dict[str, str], ...] = ()

    def documents(self) -> list[dict[str, Any]]:
        """The Node documents, named ``<prefix>-<number>`` from 0."""
        return [self._node(number) for number in range(self.count)]

    def _node(self, number: int) -> dict[str, Any]:
        name = f"{self.prefix}-{number}"
        rack = number // self.rack_size
        size = {"cpu": self.cpu, "memory": self.memory, "pods": str(self.pods)}
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            REGION: "rig",
            ZONE: f"rig-{'abcdefghij'[number // self.zone_size % 10]}",
            RACK: f"rack-{rack}",
        }
        if self.gpus:
            size["nvidia.com/gpu"] = str(self.gpus)
            labels["nvidia.com/gpu.product"] = self.product
            labels[CLIQUE] = f"00000000-0000-0000-0000-{rack:012d}.1"
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {**labels, **self.labels}},
            "spec": {"taints": list(self.taints)} if self.taints else {},
            "status": {"capacity": size, "allocatable": size},
        }
