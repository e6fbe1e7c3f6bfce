"""Accelerators that a group of pods occupies."""

from __future__ import annotations

from policy.topology.facts import Group

# Extended resources that are whole accelerators; network cards and the like are not devices in this sense.
ACCELERATORS = frozenset(
    {
        "nvidia.com/gpu",
        "amd.com/gpu",
        "gpu.intel.com/i915",
        "gpu.intel.com/xe",
        "habana.ai/gaudi",
        "google.com/tpu",
        "aws.amazon.com/neuron",
        "huawei.com/Ascend910",
    }
)


def devices_of(group: Group) -> int:
    """Accelerators that all pods of one group ask for together. MIG slices and claims (DRA) are not counted."""
    return sum(count for pod in group.pods for name, count in pod.requests if name in ACCELERATORS)
