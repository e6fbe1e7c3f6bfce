"""How a scaler is paused while an operation holds its target, and how it is given back exactly.

A scaler's settings are looked at as `{"spec": {…}, "annotations": {…}}`, only the fields in `FIELDS`; in what is
written or recorded, None stands for "not there". Why each kind is paused as it is:

* HorizontalPodAutoscaler (kube-controller-manager 1.36, horizontal.go): `selectPolicy: Disabled` stops a direction,
  but is only asked while the number lies within minReplicas and maxReplicas: outside of them the controller scales
  to the nearer bound at once. min = max would have it fight the operation, which drains the target. So both directions
  are disabled, and a bound is widened where the operation passes it. At 0 the controller itself does nothing.
* ScaledObject (KEDA 2.21): the annotation `paused` ends its loop and deletes the HPA that it made; `paused-replicas`
  wins over it and would scale to its number, so it is taken away for the time where that is not what stands.
* PodAutoscaler (Knative serving 0.51): no pause, only bounds, as annotations of the PodAutoscaler itself. min = max
  holds one number; a maximum of 0 is none, and without a route the minimum is not kept. Where a Revision owns it, the
  Revision's annotations are copied over it at any time (since 0.48), so those bounds would not stay. The class `kpa`
  needs a `spec.selector` in what it scales, which neither a LeaderWorkerSet nor a role scaler has; the class `hpa`
  makes an HPA, onto which it copies every annotation, our record included.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

HPA = "HorizontalPodAutoscaler"
SCALED_OBJECT = "ScaledObject"
POD_AUTOSCALER = "PodAutoscaler"

KEDA_PAUSED = "autoscaling.keda.sh/paused"
KEDA_PAUSED_REPLICAS = "autoscaling.keda.sh/paused-replicas"
KNATIVE_MIN = "autoscaling.knative.dev/min-scale"
KNATIVE_MAX = "autoscaling.knative.dev/max-scale"

FIELDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    HPA: {"spec": ("behavior", "maxReplicas", "minReplicas")},
    SCALED_OBJECT: {"annotations": (KEDA_PAUSED, KEDA_PAUSED_REPLICAS)},
    POD_AUTOSCALER: {"annotations": (KNATIVE_MAX, KNATIVE_MIN)},
}
_FALSE = {"0", "f", "F", "false", "FALSE", "False"}  # what Go's ParseBool takes for false


@dataclass(frozen=True, slots=True)
class Target:
    """What a scaler may aim at. `role` is empty where it is about all of them; `replicas` is None where it has no
    number; `moves`: the operation itself changes the number while it runs, from `replicas` down to 0 and back."""

    kind: str
    name: str
    role: str = ""
    replicas: int | None = None
    moves: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """How one scaler is paused: settings to merge in (empty: it stands still already), in words, or why it cannot
    be."""

    settings: Json = field(default_factory=dict)
    way: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Kept:
    """A field that somebody changed while the scaler was paused: it stays as they left it."""

    path: str
    original: Any
    paused: Any
    now: Any


@dataclass(frozen=True, slots=True)
class GivenBack:
    """Settings to merge in so that a scaler is as it was, and what somebody else has changed meanwhile."""

    settings: Json
    kept: tuple[Kept, ...] = ()


def settings_of(body: Mapping[str, Any]) -> Json:
    """The fields of a scaler that pausing may touch, as they stand; absent ones left out."""
    parts = FIELDS[body["kind"]]
    stands = {"spec": body.get("spec") or {}, "annotations": body["metadata"].get("annotations") or {}}
    return {
        part: {name: deepcopy(stands[part][name]) for name in names if name in stands[part]}
        for part, names in parts.items()
    }


def allowed_settings(kind: str, recorded: Any) -> Json:
    """What a record says, reduced to fields that pausing may touch: records on objects can be written by others."""
    found: Json = {}
    for part, names in FIELDS[kind].items():
        values = recorded.get(part) if isinstance(recorded, Mapping) else None
        if isinstance(values, Mapping):
            found[part] = {name: values[name] for name in names if name in values}
    return found


def made_by(body: Mapping[str, Any]) -> str:
    """`Kind name` of the controller that owns a scaler, or an empty string."""
    owners = body["metadata"].get("ownerReferences") or []
    return next((f"{each['kind']} {each['name']}" for each in owners if each.get("controller")), "")


def is_made_by_scaler(body: Mapping[str, Any]) -> bool:
    """Whether another scaler made this one and would write it back: its maker is paused in its place."""
    return body["kind"] == HPA and made_by(body).split(" ")[0] in (SCALED_OBJECT, POD_AUTOSCALER)


def with_settings(body: Mapping[str, Any], settings: Mapping[str, Any]) -> Json:
    """A scaler with exactly these settings in the place of its own."""
    found = deepcopy(dict(body))
    for part, names in FIELDS[body["kind"]].items():
        holder = found if part == "spec" else found["metadata"]
        kept = {key: value for key, value in (holder.get(part) or {}).items() if key not in names}
        holder[part] = {**kept, **deepcopy(dict(settings.get(part) or {}))}
    return found


def target_of(body: Mapping[str, Any]) -> tuple[str, str]:
    """(kind, name) of what a scaler aims at; KEDA takes a Deployment where no kind is given."""
    aimed = (body.get("spec") or {}).get("scaleTargetRef") or {}
    return aimed.get("kind") or "Deployment", aimed.get("name") or ""


def plan_pause(body: Mapping[str, Any], target: Target) -> Pause:
    """How to pause a scaler as it stands, aimed at this target."""
    kind = body["kind"]
    if owner := made_by(body):
        return Pause(problem=f"{owner} manages it and may write it back at any time")
    if kind == HPA:
        return _pause_hpa(body["spec"], target)
    if kind == SCALED_OBJECT:
        return _pause_scaled_object(settings_of(body)["annotations"], target)
    return _pause_pod_autoscaler(body, target)


def _pause_hpa(spec: Mapping[str, Any], target: Target) -> Pause:
    settings: Json = {}
    behavior = spec.get("behavior") or {}
    stop = {
        direction: {"selectPolicy": "Disabled"}
        for direction in ("scaleDown", "scaleUp")
        if (behavior.get(direction) or {}).get("selectPolicy") != "Disabled"
    }
    if stop:
        settings["behavior"] = stop
    least, most = int(spec.get("minReplicas", 1)), int(spec["maxReplicas"])
    if target.replicas is not None:
        lowest = 1 if target.moves else max(target.replicas, 1)
        if least > lowest:
            settings["minReplicas"] = lowest
        if most < target.replicas:
            settings["maxReplicas"] = target.replicas
    way = "both directions disabled"
    if {"minReplicas", "maxReplicas"} & set(settings):
        way += ", bounds widened to what the operation passes"
    return Pause({"spec": settings} if settings else {}, way)


def _pause_scaled_object(annotations: Mapping[str, str], target: Target) -> Pause:
    asked = annotations.get(KEDA_PAUSED_REPLICAS)
    if asked is not None and asked == str(target.replicas) and not target.moves:
        return Pause(way=f"paused by its owner at {asked}")
    wanted: Json = {}
    if annotations.get(KEDA_PAUSED, "false") in _FALSE:
        wanted[KEDA_PAUSED] = "true"
    if asked is not None:
        wanted[KEDA_PAUSED_REPLICAS] = None
    return Pause({"annotations": wanted} if wanted else {}, "annotation paused")


def _pause_pod_autoscaler(body: Mapping[str, Any], target: Target) -> Pause:
    if target.moves:
        return Pause(
            problem="Knative knows bounds and no pause, and the operation changes the number they would hold"
        )
    if not target.replicas:
        return Pause(problem="Knative cannot be held at 0 or at an unknown number: a maximum of 0 is none")
    if (body.get("spec") or {}).get("reachability") == "Unreachable":
        return Pause(problem="Knative does not keep a minimum for what no route leads to")
    number = str(target.replicas)
    stands = settings_of(body)["annotations"]
    wanted = {key: number for key in (KNATIVE_MAX, KNATIVE_MIN) if stands.get(key) != number}
    return Pause({"annotations": wanted} if wanted else {}, f"minimum = maximum = {number}")


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Json, Json]:
    """(before, after) reduced to what differs; None where a field is not there on that side."""
    old: Json = {}
    new: Json = {}
    for key in sorted({*before, *after}):
        was, now = before.get(key), after.get(key)
        if was == now:
            continue
        if isinstance(was, Mapping) and isinstance(now, Mapping):
            old[key], new[key] = difference(was, now)
        else:
            old[key], new[key] = deepcopy(was), deepcopy(now)
    return old, new


def merged(stands: Mapping[str, Any], change: Mapping[str, Any]) -> Json:
    """JSON merge patch (RFC 7386) on a copy."""
    found = deepcopy(dict(stands))
    for key, value in change.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, Mapping):
            below = found.get(key)
            found[key] = merged(below if isinstance(below, Mapping) else {}, value)
        else:
            found[key] = deepcopy(value)
    return found


def give_back(original: Mapping[str, Any], paused: Mapping[str, Any], now: Mapping[str, Any]) -> GivenBack:
    """What to merge into `now`, given what pausing changed (`original` → `paused`, as of `difference`).

    A field that stands as pausing left it goes back; one that somebody has put back already needs nothing; one that
    has any other value was somebody's choice and stays.
    """
    kept: list[Kept] = []
    settings = _back(original, paused, now, "", kept)
    return GivenBack(settings, tuple(kept))


def _back(
    original: Mapping[str, Any],
    paused: Mapping[str, Any],
    now: Mapping[str, Any],
    path: str,
    kept: list[Kept],
) -> Json:
    change: Json = {}
    for key in sorted({*original, *paused}):
        was, left, stands = original.get(key), paused.get(key), now.get(key)
        here = f"{path}.{key}" if path else key
        if stands == left:
            if was != left:
                change[key] = deepcopy(was)
        elif isinstance(left, Mapping) and isinstance(stands, Mapping):
            below = _back(was if isinstance(was, Mapping) else {}, left, stands, here, kept)
            emptied = was is None and below and not merged(stands, below)
            if below:
                change[key] = None if emptied else below
        elif not _is_back(was, stands):
            kept.append(Kept(here, was, left, stands))
    return change


def _is_back(original: Any, now: Any) -> bool:
    """Whether what stands holds the recorded part: a record has only the fields that differed."""
    if isinstance(original, Mapping) and isinstance(now, Mapping):
        return all(_is_back(value, now.get(key)) for key, value in original.items())
    return bool(original == now)


def rest_of(spec: Mapping[str, Any], recorded: Mapping[str, Any]) -> Json:
    """A scaler's spec without the recorded fields: what pausing has left alone."""
    found: Json = {}
    for key, value in spec.items():
        if key not in recorded:
            found[key] = value
        elif isinstance(value, Mapping) and isinstance(recorded[key], Mapping):
            if below := rest_of(value, recorded[key]):
                found[key] = below
    return found


def changed_keys(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Keys whose values (digests of fields) differ, or that came or went."""
    return [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
