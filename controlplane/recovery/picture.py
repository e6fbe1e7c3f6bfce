"""From one look and the recorded document to what decides the order of a restore (policy/recovery/order)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from controlplane.fleet.names import created_at, labels_of, read_time
from controlplane.fleet.writers import outside_writers
from controlplane.holds.leftover import others_of
from controlplane.holds.live import LiveSet
from controlplane.holds.steadiness import ready_condition
from controlplane.paths.objects import is_ready
from controlplane.paths.view import PoolView
from controlplane.recovery.parts.router import unwritable
from controlplane.recovery.parts.task import goal_of
from controlplane.recovery.reading import Seen
from policy.recovery.diff import (
    CONFIG_MAP,
    OBJECTIVE,
    ROUTE,
    ROUTER,
    SCALER,
    PartDiff,
    diff_combination,
    roles_changed,
)
from policy.recovery.order import Good, Picture, RouterPicture
from policy.router.settings import RouterSettings, read_settings

Json = dict[str, Any]


def picture_of(document: Json, seen: Seen) -> Picture | None:
    """What is there now next to what was recorded; None where the set does not exist."""
    if seen.live is None:
        return None
    live, then = seen.live, document["workload"]
    diffs = diff_combination(document, seen.document)
    goal = goal_of(document, live)
    placed = seen.document["workload"]["placement"] == then["placement"]
    slices = max(1, len(live.slices))
    return Picture(
        good=_good(then, live, goal),
        others=tuple(sorted({key[1] for key in others_of(live, then["revision"])})),
        roles_differ=tuple([*roles_changed(then["roles"], live.roles), *([] if placed else ["placement"])]),
        slices_differ=then["slices"] != len(live.slices),
        config_maps=_names(diffs, CONFIG_MAP),
        routers=tuple(_routers(document, seen, diffs)),
        objectives=_names(diffs, OBJECTIVE),
        routes=_names(diffs, ROUTE),
        scalers=tuple(
            each.name for each in diffs if each.part == SCALER and each.what == ("settings",)
        ),
        writers=outside_writers(live.body),
        groups={role: count * slices for role, count in goal.items()},
        there={
            role: sum(live.counts().get((name, then["revision"], role), 0) for name in live.slices)
            for role in goal
        },
        cold_start_s=_cold_start(seen.pods),
    )  # fmt: skip


def _names(diffs: Sequence[PartDiff], part: str) -> tuple[str, ...]:
    return tuple(each.name for each in diffs if each.part == part and each.verdict == "differs")


def _good(then: Json, live: LiveSet, goal: Mapping[str, int]) -> Good:
    label = then["revision"]
    if not live.short_of(label, goal) and not others_of(live, label):
        return "alone"
    whole = all(
        live.ready((slice_name, label, role))
        for slice_name in live.slices
        for role, count in goal.items()
        if count
    )
    return "whole" if whole else "gone"


def _routers(document: Json, seen: Seen, diffs: Sequence[PartDiff]) -> list[RouterPicture]:
    differs = {each.name: each for each in diffs if each.part == ROUTER and each.verdict == "differs"}
    recorded = {each["name"]: each for each in document["pools"]}
    now = {pool.name: pool for path in seen.paths for pool in path.pools}
    assert seen.live is not None
    roles = [role["name"] for role in seen.live.roles]
    found = []
    for name in sorted({*recorded, *now}):
        then, pool = recorded.get(name), now.get(name)
        settings = read_settings(then["router"]["config"]["text"]) if then else RouterSettings(readable=False)
        changed = differs.get(name)
        found.append(
            RouterPicture(
                pool=name,
                differs=changed.what if changed else (),
                screens_now=pool is not None and _screens(pool.router.settings, roles),
                screens_then=_screens(settings, [role["name"] for role in document["workload"]["roles"]]),
                serves_now=_serves(settings, pool, roles),
                unwritable=unwritable(then, pool) if then and changed else "",
            )
        )
    return found


def _screens(settings: RouterSettings, roles: Sequence[str]) -> bool:
    """Whether requests stay inside one revision that has every role of the set (DESIGN 4.2)."""
    screener = settings.screener
    return screener is not None and screener.mode != "disabled" and set(roles) <= set(screener.required_roles)


def _serves(settings: RouterSettings, pool: PoolView | None, roles: Sequence[str]) -> bool:
    """Whether what serves now would still be served under these settings."""
    screener = settings.screener
    if screener is None or pool is None:
        return settings.readable
    ready: dict[str, set[str]] = {}
    for pod in pool.pods:
        if pod.ready:
            ready.setdefault(pod.revision, set()).add(pod.role)
    return any(set(screener.required_roles) <= there for there in ready.values())


def _cold_start(pods: Sequence[Json]) -> float | None:
    """The longest time from creation to ready among pods that have never restarted; None where none is ready."""
    longest: float | None = None
    for pod in pods:
        statuses = (pod.get("status") or {}).get("containerStatuses") or ()
        if not labels_of(pod) or not is_ready(pod) or any(each.get("restartCount") for each in statuses):
            continue
        ready, made = read_time(ready_condition(pod).get("lastTransitionTime")), created_at(pod)
        if ready and made:
            longest = max(longest or 0.0, (ready - made).total_seconds())
    return longest
