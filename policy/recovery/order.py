"""In which order the parts of a combination are put back, from what is there now (DESIGN 8).

The rules, each with a reason that is shown:

* what is equal is left alone;
* contents of ConfigMaps come first, because new pods read them when they start;
* the good revision has a ready group of every role: its roles are written back before anything else of the path;
* it is gone: the workload is rolled out to it under a floor on what serves, and the router's configuration comes before
  that only where it brings the revision screening that is missing and serves what serves now;
* a workload whose requests may mix revisions is changed only with screening, or after traffic was drained;
* weights are given only to a ready set, and scalers come last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from policy.rollout.refusal import Refusal

Good: TypeAlias = Literal["alone", "whole", "gone"]
Way: TypeAlias = Literal["", "back", "anew"]
PartName: TypeAlias = Literal[
    "config-maps", "drain", "workload", "router", "objectives", "weights", "scalers"
]
PARTS: tuple[PartName, ...] = (
    "config-maps", "drain", "workload", "router", "objectives", "weights", "scalers",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RouterPicture:
    """The router of one pool. `screens_now` and `screens_then`: requests stay inside one revision, for every role of
    the set, under its present and its recorded configuration. `serves_now`: under the recorded one what serves now
    would still be served."""

    pool: str
    differs: tuple[str, ...] = ()
    screens_now: bool = False
    screens_then: bool = False
    serves_now: bool = False
    unwritable: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """What is there now, next to what was recorded.

    `good`: the recorded revision is `alone` with its recorded groups, all ready; `whole`: it has a ready group of
    every role in every slice; `gone`: it has not. `others` are other revisions with groups. `config_maps`,
    `objectives`, `routes` and `scalers` name what differs. `groups` are the recorded groups per role over all slices,
    `there` how many of them stand. `cold_start_s`: the longest start seen of the groups that are there.
    """

    good: Good
    others: tuple[str, ...] = ()
    roles_differ: tuple[str, ...] = ()
    slices_differ: bool = False
    config_maps: tuple[str, ...] = ()
    routers: tuple[RouterPicture, ...] = ()
    objectives: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    scalers: tuple[str, ...] = ()
    writers: tuple[str, ...] = ()
    groups: Mapping[str, int] = field(default_factory=dict)
    there: Mapping[str, int] = field(default_factory=dict)
    cold_start_s: float | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """What a person agreed to: an outage while traffic is drained, and outside writers that were named."""

    accept_outage: bool = False
    writers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """One part to put back; `names` says which objects, `way` how the workload is put back."""

    name: PartName
    reason: str
    names: tuple[str, ...] = ()
    way: Way = ""


@dataclass(frozen=True, slots=True)
class Estimate:
    """`to_start` groups have to be started, `beside` of them while as many others still stand. `seconds` is None
    where no start has been seen to go by."""

    to_start: int
    beside: int
    seconds: int | None
    sentence: str


@dataclass(frozen=True, slots=True)
class Order:
    """The ordered parts, or refusals; `outage` says that requests are refused on the way."""

    parts: tuple[Part, ...]
    refusals: tuple[Refusal, ...]
    writers: tuple[str, ...]
    outage: bool
    estimate: Estimate


def order_parts(picture: Picture, options: Options | None = None) -> Order:
    """Every part that differs, in the order in which it is put back, or why that may not be done."""
    options = options or Options()
    way = _way(picture)
    mixing = bool(way) and (way == "anew" or bool(picture.others))
    early = _early_routers(picture) if mixing else ()
    open_pools = [
        each.pool for each in picture.routers if mixing and not each.screens_now and each.pool not in early
    ]
    parts = [
        *_config_maps(picture),
        *_router(picture, early, "it brings the revision screening that is missing, and serves what serves now"),
        *([_drain(open_pools)] if open_pools else []),
        *_workload(picture, way),
        *_router(
            picture,
            tuple(each.pool for each in picture.routers if each.differs and each.pool not in early),
            "its configuration is not the recorded one, and the workload comes first",
        ),
        *_rest(picture, drained=bool(open_pools)),
    ]  # fmt: skip
    return Order(
        parts=tuple(parts),
        refusals=tuple(_refusals(picture, options, open_pools, parts)),
        writers=picture.writers,
        outage=bool(open_pools),
        estimate=_estimate(picture, way),
    )


def _way(picture: Picture) -> Way:
    if picture.good == "alone" and not picture.roles_differ:
        return ""
    return "anew" if picture.good == "gone" else "back"


def _early_routers(picture: Picture) -> tuple[str, ...]:
    return tuple(
        each.pool
        for each in picture.routers
        if each.differs and each.screens_then and not each.screens_now and each.serves_now
    )


def _config_maps(picture: Picture) -> list[Part]:
    if not picture.config_maps:
        return []
    reason = "pods read them when they start, so they come before any pod is started"
    return [Part("config-maps", reason, picture.config_maps)]


def _router(picture: Picture, pools: tuple[str, ...], reason: str) -> list[Part]:
    return [Part("router", reason, pools)] if pools else []


def _drain(pools: list[str]) -> Part:
    reason = "the router does not keep requests inside one revision: without traffic nothing can mix"
    return Part("drain", reason, tuple(pools))


def _workload(picture: Picture, way: Way) -> list[Part]:
    if not way:
        return []
    if way == "anew":
        reason = "the good revision has no complete ready set: it is started beside what serves, which keeps its groups"
    elif picture.others:
        reason = "the good revision still has a complete ready set: its roles are written back first"
    else:
        reason = (
            f"the revision is right, and these are not: {', '.join(picture.roles_differ) or 'its groups'}"
        )
    return [Part("workload", reason, picture.roles_differ, way)]


def _rest(picture: Picture, *, drained: bool) -> list[Part]:
    parts = []
    if picture.objectives:
        reason = "after the router's configuration, which declares their bands"
        parts.append(Part("objectives", reason, picture.objectives))
    if picture.routes or drained:
        reason = "only now: the set behind them is complete and ready"
        parts.append(Part("weights", reason, picture.routes))
    if picture.scalers:
        reason = "last: a scaler must not move groups while they are put back"
        parts.append(Part("scalers", reason, picture.scalers))
    return parts


def _refusals(picture: Picture, options: Options, open_pools: list[str], parts: list[Part]) -> list[Refusal]:
    found = []
    if picture.slices_differ:
        found.append(
            Refusal(
                "slices-differ",
                "the set has another number of slices than was recorded, and slices are removed without a drain",
                "write the recorded number of slices yourself, then restore",
            )
        )
    if open_pools and not options.accept_outage:
        found.append(
            Refusal(
                "no-screening",
                f"the router of {', '.join(open_pools)} does not keep requests inside one revision, so that this"
                " restore would mix prefill and decode of two revisions",
                "accept the outage: traffic is drained first; or put revision screening into the router",
            )
        )
    for each in picture.routers:
        if each.differs and each.unwritable:
            found.append(
                Refusal("router-not-writable", f"{each.pool}: {each.unwritable}", "put it back by hand")
            )
    unnamed = [writer for writer in picture.writers if writer not in options.writers]
    if unnamed and any(part.name == "workload" for part in parts):
        found.append(
            Refusal(
                "writers-not-acknowledged",
                f"{', '.join(unnamed)} also writes this set and will undo this unless it is paused",
                "pause it, or acknowledge that it will undo this",
            )
        )
    return found  # fmt: skip


def _estimate(picture: Picture, way: Way) -> Estimate:
    to_start = sum(
        max(0, count - picture.there.get(role, 0)) for role, count in picture.groups.items()
    ) if way else 0  # fmt: skip
    beside = to_start if way == "anew" else 0
    known = picture.cold_start_s if to_start else 0.0
    seconds = None if known is None else round(known)
    if not to_start:
        return Estimate(0, 0, seconds, "No group has to be started.")
    took = (
        "how long a start takes was not seen"
        if seconds is None
        else f"the longest start seen took {seconds} s"
    )
    room = ", with room for them beside what stands" if beside else ""
    return Estimate(to_start, beside, seconds, f"{to_start} groups have to be started{room}; {took}.")
