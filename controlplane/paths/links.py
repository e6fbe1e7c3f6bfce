"""The KV link of each revision as it was measured, against what its engines and the pool's link let one expect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from controlplane.metrics.measured import Measured
from controlplane.paths.pool_settings import PoolSettings
from controlplane.paths.view import PoolView
from policy.shares.facts import DECODES
from policy.transfer.arguments import EngineArguments, engine_container, read_container
from policy.transfer.observed import ObservedTime, observe_bytes, observe_time
from policy.transfer.transfer_time import share_of_budget

Json = dict[str, Any]


def links_of(
    pool: PoolView,
    engines: Sequence[tuple[str, Measured]],
    *,
    pods: Mapping[str, Mapping[str, Any]],
    settings: PoolSettings,
) -> list[Json]:
    """One entry for each revision of the pool. `engines` are numbers by set; `pods` are whole pods by UID."""
    revisions = sorted({(pod.set_name, pod.revision) for pod in pool.pods if pod.in_pool})
    found = []
    for set_name, revision in revisions:
        mine = [one for name, one in engines if (name, one.revision) == (set_name, revision)]
        started = _decode_arguments(pool, revision, pods)
        found.append({"set": set_name, "revision": revision, **_link(mine, started, settings)})
    return found


def _link(mine: Sequence[Measured], started: EngineArguments | None, settings: PoolSettings) -> Json:
    moved = next((one for one in mine if one.name == "transfer_bytes_per_token"), None)
    mean = _busiest(mine, "mean")
    count = _busiest(mine, "count")
    size = _size(moved, count)
    per_token = observe_bytes(moved.value if moved else None, started)
    time = observe_time(mean.value if mean else None, size=size, link=settings.link, nics=settings.nics)
    return {
        "bytes": {**asdict(per_token), **_worth(moved)},
        "time": {**asdict(time), **_worth(mean), "budget_shares": _shares(time, settings.ttft_budget)},
        "bytes_per_transfer": size,
        "link": settings.link,
    }


def _shares(time: ObservedTime, budget: float) -> Json | None:
    """Which parts of the time to the first token a transfer takes, measured and expected; None without a budget."""
    if not budget:
        return None
    times = {"measured": time.measured, "low": time.low, "high": time.high}
    return {name: None if value is None else share_of_budget(value, budget) for name, value in times.items()}


def _worth(one: Measured | None) -> Json:
    """What a number is worth: how much is behind it, or which of the three absences it is."""
    if one is None:
        return {"display": "no-data", "samples": 0, "enough": False, "reason": "Nobody asked for it."}
    return {
        "display": one.state.value,
        "samples": one.count or 0,
        "enough": one.enough,
        "reason": one.reason,
        "query": one.query,
    }


def _busiest(mine: Sequence[Measured], stat: str) -> Measured | None:
    """The side that tells transfers is the one that reads (or pushes): the other has none."""
    found = [one for one in mine if (one.name, one.stat) == ("transfer_time", stat)]
    return max(found, key=lambda one: (one.value is not None, one.count or 0.0), default=None)


def _size(moved: Measured | None, count: Measured | None) -> float | None:
    if moved is None or moved.value is None or not moved.count or count is None or not count.value:
        return None
    return moved.value * moved.count / count.value


def _decode_arguments(
    pool: PoolView, revision: str, pods: Mapping[str, Mapping[str, Any]]
) -> EngineArguments | None:
    for pod in pool.pods:
        spec = (pods.get(pod.uid) or {}).get("spec") or {}
        if pod.revision != revision or pod.role not in DECODES or not spec:
            continue
        name = engine_container(spec)
        container = next((each for each in spec.get("containers") or () if each.get("name") == name), None)
        if container is not None:
            return read_container(container)
    return None
