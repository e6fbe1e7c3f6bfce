"""Resource quotas: which pods of a group the API server would refuse to create."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from policy.topology.facts import Demand, Pod, Quota, Resources, Unknown

POD_COUNTS = ("pods", "count/pods")
BARE = ("cpu", "memory", "ephemeral-storage")
COMPUTE = ("cpu", "memory")
# Scopes whose meaning for a serving pod follows from the pod alone.
UNDERSTOOD = {"Terminating", "NotTerminating", "BestEffort", "NotBestEffort"}


@dataclass(slots=True)
class Allowance:
    """Quotas with their use so far, raised by every pod taken; `unknowns` lists those of unclear scope."""

    quotas: tuple[Quota, ...]
    unknowns: list[Unknown] = field(default_factory=list)
    _used: dict[tuple[str, str, str], int] = field(default_factory=dict)

    def take(self, namespace: str, demand: Demand) -> str | None:
        """Count one more pod; the sentence of the quota that refuses it, or None.

        A refused pod is not counted. A quota with a scope selector that would refuse becomes an unknown.
        """
        applying = [
            quota for quota in self.quotas if quota.namespace == namespace and _applies(quota, demand)
        ]
        for quota in applying:
            why = self._refusal(quota, demand)
            if why is not None and not _clear(quota):
                self._doubt(quota)
            elif why is not None:
                return why
        for quota in applying:
            for name, amount in _charged(quota.hard, demand):
                key = (namespace, quota.name, name)
                self._used[key] = self._used.get(key, 0) + amount
        return None

    def _refusal(self, quota: Quota, demand: Demand) -> str | None:
        unnamed = _unnamed(quota.hard, demand)
        if unnamed is not None:
            return f"Quota {quota.name} wants every pod to name {unnamed}."
        for name, amount in _charged(quota.hard, demand):
            used = quota.used.get(name, 0) + self._used.get((quota.namespace, quota.name, name), 0)
            if used + amount > quota.hard[name]:
                return (
                    f"Quota {quota.name} allows {quota.hard[name]} of {name}; "
                    f"{used} are used and the pod needs {amount}."
                )
        return None

    def _doubt(self, quota: Quota) -> None:
        unknown = Unknown(
            "quota-scope", f"Quota {quota.name} would refuse pods if its scope selector selects them."
        )
        if unknown not in self.unknowns:
            self.unknowns.append(unknown)


def without(quota: Quota, gone: Iterable[Pod]) -> Quota:
    """The quota as it will be used once these pods are gone: what each was charged is free again."""
    used = dict(quota.used)
    for pod in gone:
        if pod.namespace == quota.namespace and _applies(quota, pod.demand):
            for name, amount in _charged(quota.hard, pod.demand):
                used[name] = max(0, used.get(name, 0) - amount)
    return replace(quota, used=used)


def _clear(quota: Quota) -> bool:
    return not quota.has_selector and set(quota.scopes) <= UNDERSTOOD


def _applies(quota: Quota, demand: Demand) -> bool:
    best_effort = not any(name in COMPUTE for name, _ in (*demand.requests, *demand.limits))
    rules = {
        "Terminating": False,  # serving pods have no deadline
        "NotTerminating": True,
        "BestEffort": best_effort,
        "NotBestEffort": not best_effort,
    }
    return all(rules.get(scope, True) for scope in quota.scopes)


def _charged(hard: Resources, demand: Demand) -> Iterable[tuple[str, int]]:
    """What a pod adds to each resource that the quota limits."""
    requests, limits = dict(demand.requests), dict(demand.limits)
    for name in hard:
        if name in POD_COUNTS:
            yield name, 1
        elif name in BARE or name.startswith("hugepages-"):
            yield name, requests.get(name, 0)
        elif name.startswith("requests."):
            yield name, requests.get(name.removeprefix("requests."), 0)
        elif name.startswith("limits."):
            yield name, limits.get(name.removeprefix("limits."), 0)


def _unnamed(hard: Resources, demand: Demand) -> str | None:
    """A compute resource that the quota limits and the pod does not state, which refuses the pod."""
    requests, limits = dict(demand.requests), dict(demand.limits)
    for resource in COMPUTE:
        if (resource in hard or f"requests.{resource}" in hard) and resource not in requests:
            return f"requests.{resource}"
        if f"limits.{resource}" in hard and resource not in limits:
            return f"limits.{resource}"
    return None
