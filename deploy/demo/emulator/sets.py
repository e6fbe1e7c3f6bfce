"""What the manager of LeaderWorkerSet and DisaggregatedSet asks of them, beyond the schema of their kinds."""

from __future__ import annotations

import re
from typing import Any

from deploy.demo.emulator.respelling import respell

Doc = dict[str, Any]
_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_TOPOLOGY_KEYS = (
    "leaderworkerset.sigs.k8s.io/exclusive-topology",
    "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology",
)
_MAX_PODS = 2**31 - 1


def fill_group_set(doc: Doc) -> None:
    """What the mutating webhook of a LeaderWorkerSet fills in; it is written in Go, and respells the templates."""
    spec = doc.setdefault("spec", {})
    template = spec.setdefault("leaderWorkerTemplate", {})
    for name in ("leaderTemplate", "workerTemplate"):
        if name in template:
            respell(template[name])
    if not template.get("restartPolicy"):
        template["restartPolicy"] = "RecreateGroupOnPodRestart"
    strategy = spec.setdefault("rolloutStrategy", {})
    strategy["type"] = strategy.get("type") or "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        pace = strategy.setdefault("rollingUpdateConfiguration", {})
        for key, value in (("maxUnavailable", 1), ("maxSurge", 0), ("partition", 0)):
            pace.setdefault(key, value)
    network = spec.get("networkConfig")
    if not network or not network.get("subdomainPolicy"):
        spec["networkConfig"] = {**(network or {}), "subdomainPolicy": "Shared"}


def judge_group_set(doc: Doc, old: Doc | None) -> list[str]:
    """What the validating webhook of a LeaderWorkerSet has against it."""
    found = []
    name, spec = doc["metadata"]["name"], doc.get("spec") or {}
    template = spec.get("leaderWorkerTemplate") or {}
    if not _DNS_1035.fullmatch(name) or len(name) > 63:
        found.append(
            f'metadata.name: Invalid value: "{name}": a DNS-1035 label must consist of lower case letters'
        )
    replicas, size = spec.get("replicas", 1), template.get("size", 1)
    if replicas < 0:
        found.append(f"spec.replicas: Invalid value: {replicas}: replicas must be equal or greater than 0")
    if size < 1:
        found.append(
            f"spec.leaderWorkerTemplate.size: Invalid value: {size}: size must be equal or greater than 1"
        )
    if replicas * size > _MAX_PODS:
        found.append(
            f"spec.replicas: Invalid value: {replicas}: the product of replicas and size is too large"
        )
    pace = (spec.get("rolloutStrategy") or {}).get("rollingUpdateConfiguration") or {}
    found += _judge_pace(pace, replicas, "spec.rolloutStrategy.rollingUpdateConfiguration", both_zero=True)
    groups = template.get("subGroupPolicy")
    before = ((old or {}).get("spec") or {}).get("leaderWorkerTemplate") or {}
    path = "spec.leaderWorkerTemplate.subGroupPolicy.subGroupSize"
    if groups:
        part = groups.get("subGroupSize", 0)
        if part < 1 or (size % part and (size - 1) % part):
            found.append(f"{path}: Invalid value: {part}: size or size - 1 must be divisible by subGroupSize")
    if old is not None and (groups or {}).get("subGroupSize") != (before.get("subGroupPolicy") or {}).get(
        "subGroupSize"
    ):
        found.append(f"{path}: Invalid value: {(groups or {}).get('subGroupSize')}: field is immutable")
    return found


def judge_set(doc: Doc) -> list[str]:
    """What the validating webhook of a DisaggregatedSet has against it; there is no mutating one."""
    spec = doc["spec"]
    sliced = "slices" in spec
    found = []
    for index, role in enumerate(spec["roles"]):
        found += _judge_role(doc["metadata"]["name"], role, f"spec.roles[{index}]", sliced, spec)
    placement = spec.get("placementPolicy") or {}
    if placement.get("type", "None") != "None":
        found += _judge_placement(spec)
    return found


def _judge_role(name: str, role: Doc, path: str, sliced: bool, spec: Doc) -> list[str]:
    found = []
    inner = role.get("spec") or {}
    strategy = inner.get("rolloutStrategy") or {}
    at = f"{path}.spec.rolloutStrategy"
    if strategy.get("type", "RollingUpdate") not in ("", "RollingUpdate"):
        found.append(f'{at}.type: Invalid value: "{strategy["type"]}": only RollingUpdate is supported')
    pace = strategy.get("rollingUpdateConfiguration") or {}
    if pace.get("partition"):
        found.append(
            f"{at}.rollingUpdateConfiguration.partition: Invalid value: {pace['partition']}: partition must be 0, "
            "the set drives rollouts itself"
        )
    if sliced and pace:  # 0.9.0 lets any pace through, also one of nothing at all
        found += _judge_pace(
            pace, inner.get("replicas", 1), f"{at}.rollingUpdateConfiguration", both_zero=True
        )
    if (role.get("scaling") or {}).get("mode") == "External":
        if spec.get("slices", 1) > 1:
            found.append(
                f'{path}.scaling.mode: Invalid value: "External": not supported with more than one slice'
            )
        if len(f"{name}-{role['name']}") > 253:
            found.append(f'{path}.name: Invalid value: "{role["name"]}": the name of its scaler is too long')
    if sliced:
        digits = len(str(max(0, spec["slices"] - 1)))
        if len(name) + len(role["name"]) + 3 + digits + 8 + 4 > 63:
            found.append(
                f'{path}.name: Invalid value: "{role["name"]}": generated names would exceed 63 characters'
            )
    return found


def _judge_pace(pace: Doc, replicas: int, path: str, *, both_zero: bool) -> list[str]:
    if replicas <= 0:
        return []
    found, numbers = [], {}
    for key, up in (("maxSurge", True), ("maxUnavailable", False)):
        value = pace.get(key, 0 if up else 1)
        number = resolve(value, replicas, up=up)
        if number is None:
            found.append(
                f"{path}.{key}: Invalid value: {value!r}: must be a non-negative number or at most 100%"
            )
        numbers[key] = number
    if both_zero and numbers == {"maxSurge": 0, "maxUnavailable": 0}:
        found.append(f"{path}.maxUnavailable: Invalid value: 0: must not be 0 when maxSurge is 0")
    return found


def resolve(value: int | str, replicas: int, *, up: bool) -> int | None:
    """A number or percentage of replicas as a number, surge rounded up; None where it is not allowed."""
    if isinstance(value, int):
        return value if value >= 0 else None
    found = re.fullmatch(r"([0-9]+)%", value)
    if not found or int(found[1]) > 100:
        return None
    return -(-int(found[1]) * replicas // 100) if up else int(found[1]) * replicas // 100


def _judge_placement(spec: Doc) -> list[str]:
    found = []
    if not spec["placementPolicy"].get("topology"):
        found.append("spec.placementPolicy.topology: Required value: topology is required")
    for index, role in enumerate(spec["roles"]):
        template = (role.get("spec") or {}).get("leaderWorkerTemplate") or {}
        places = {
            "metadata": role.get("metadata"),
            "spec.leaderWorkerTemplate.leaderTemplate.metadata": (template.get("leaderTemplate") or {}).get(
                "metadata"
            ),
            "spec.leaderWorkerTemplate.workerTemplate.metadata": (template.get("workerTemplate") or {}).get(
                "metadata"
            ),
        }
        for place, metadata in places.items():
            for key in _TOPOLOGY_KEYS:
                if key in ((metadata or {}).get("annotations") or {}):
                    found.append(
                        f"spec.roles[{index}].{place}.annotations: Forbidden: {key} cannot be combined with "
                        "placementPolicy"
                    )
    return found
