"""What an operation's steps and a rescue have in common when they pause scalers. No database: a rescue has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.holds.scalers.mark import Mark, UnreadableMark
from controlplane.holds.scalers.seen import Listed, Scaler, list_scalers, name_of
from controlplane.kube.client import Kube
from controlplane.operations.contract import Hold, Wait
from policy.rollout.scalers import SCALED_OBJECT

Json = dict[str, Any]

PAUSE, GIVE_BACK = "holds.pause_scalers", "holds.give_back_scalers"
TAKEN_UP_WITHIN = 15.0  # seconds; KEDA acts on an annotation at once
_OUT_OF_THE_WAY = "Remove it for the time of this operation, then retry; or abort."


def in_the_way(listed: Listed, scalers: tuple[Scaler, ...]) -> Hold | None:
    """Why nothing may be paused at all: a kind that was not read, a scaler that knows no pause."""
    if listed.unread:
        return Hold(
            "scalers-unread",
            f"This account may not list {', '.join(listed.unread)}: a scaler on the set could not be seen.",
            "Give Lockstep's account the rights as shipped, then retry; or abort.",
        )
    stuck = {each.name: each.pause.problem for each in scalers if each.pause.problem}
    if stuck:
        said = "; ".join(f"{name}: {why}" for name, why in stuck.items())
        return Hold("scaler-not-pausable", f"A scaler on the set cannot be paused. {said}.", _OUT_OF_THE_WAY)
    return None


def unreadable(error: UnreadableMark) -> Hold:
    """The annotation is there and says nothing."""
    return Hold(
        "pause-unreadable",
        str(error),
        "Find out who wrote it, put the scaler right, remove the annotation, then retry; or abort.",
    )


def not_paused(sentence: str, kept: Json) -> Hold:
    """One scaler goes on; those that are paused are remembered."""
    return Hold("scaler-not-paused", sentence, _OUT_OF_THE_WAY, remember={"scalers": kept})


def kept_of(scaler: Scaler, mark: Mark) -> Json:
    """What is remembered of a paused scaler, under its UID."""
    metadata = scaler.body["metadata"]
    return {"kind": scaler.body["kind"], "name": metadata["name"], **mark.as_json()}


def wait_for_keda(
    kube: Kube, namespace: str, kept: Mapping[str, Json], *, waited: float
) -> Hold | Wait | None:
    """While a ScaledObject that we paused still scales: KEDA says in a condition that it has taken the pause up, and
    deletes the HPA that it made. `waited` is in seconds. None where all is quiet."""
    ours = {uid for uid, each in kept.items() if each["kind"] == SCALED_OBJECT}
    if not ours:
        return None
    listed = list_scalers(kube, namespace)
    waiting = [
        name_of(body)
        for body in listed.bodies
        if body["metadata"]["uid"] in ours and not (_says_paused(body) and not listed.hpas_of(body))
    ]
    if not waiting:
        return None
    names = ", ".join(waiting)
    if waited >= TAKEN_UP_WITHIN:
        return not_paused(f"KEDA has not taken up the pause of {names}: is its operator running?", dict(kept))
    return Wait(1, f"KEDA to take up the pause of {names}", remember={"scalers": dict(kept)})


def _says_paused(body: Mapping[str, Any]) -> bool:
    conditions = (body.get("status") or {}).get("conditions") or []
    return any(each.get("type") == "Paused" and each.get("status") == "True" for each in conditions)
