"""Scalers around a restore: settings last, written where they differ from the recorded ones; and, for a rescue, paused
before anything else and given back (an operation has the steps of `holds.scalers` for that, with its database)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.holds.scalers.mark import UnreadableMark, mark_of
from controlplane.holds.scalers.pausing import in_the_way, kept_of, not_paused, unreadable, wait_for_keda
from controlplane.holds.scalers.seen import RESOURCES, list_scalers, name_of, targets_of
from controlplane.holds.scalers.writing import Holder, give_back_scaler, pause_scaler
from controlplane.kube.errors import Denied, Invalid, KubeError
from controlplane.operations.contract import Done, Outcome
from controlplane.recovery.parts.task import Task
from policy.rollout.scalers import difference, settings_of

Json = dict[str, Any]


def pause_alone(task: Task) -> Outcome:
    """Pause every scaler that aims at the set, with what was changed on the object alone.

    The Lease is ours, so whoever has paused one before writes no more: its record of what was before is inherited."""
    live = task.writer.look()
    listed = list_scalers(task.kube, task.namespace)
    scalers = listed.aimed_at(targets_of(live))
    if finding := in_the_way(listed, scalers):
        return finding
    kept: Json = dict(task.memory.get("scalers") or {})
    for scaler in scalers:
        try:
            mark = mark_of(scaler.body)
            if mark is None or mark.installation != task.writer.installation:
                stored = pause_scaler(task.kube, scaler, _holder(task), inherited=mark)
                mark = mark_of(stored) if stored else None
        except UnreadableMark as error:
            return unreadable(error)
        except (Denied, Invalid) as error:
            return not_paused(f"The API server does not let {scaler.name} be paused: {error.message}", kept)
        if mark is not None:
            kept[scaler.uid] = kept_of(scaler, mark)
    if waiting := wait_for_keda(task.kube, task.namespace, kept, waited=task.waited):
        return waiting
    names = [f"{each['kind']} {each['name']}" for each in kept.values()]
    return Done(result={"paused": names}, remember={"scalers": kept})


def _holder(task: Task) -> Holder:
    writer = task.writer
    return Holder(
        operation=writer.operation,
        installation=writer.installation,
        fence=writer.fence,
        set={"namespace": writer.namespace, "name": writer.name, "uid": writer.uid},
    )


def give_back_alone(task: Task) -> Outcome:
    """Put back every scaler that is paused for this set, whoever has paused it: nothing holds the set any more. What
    somebody changed meanwhile stays, and is said. Raises KubeError where one is refused, after the others."""
    given, findings, left = [], [], []
    refused: KubeError | None = None
    for body in list_scalers(task.kube, task.namespace).own:
        try:
            mark = mark_of(body)
            if mark is None or mark.set["uid"] != task.writer.uid:
                continue
            found = give_back_scaler(task.kube, body, mark)
        except UnreadableMark as error:
            left.append(str(error))
        except (Denied, Invalid) as error:
            refused = error
        else:
            given.append(name_of(body))
            findings += [found["sentence"]] if found else []
    if refused is not None:
        raise refused
    return Done(result={"given_back": given, "findings": findings, "left": left}, remember={"scalers": {}})


def put_scalers(task: Task, *, names: list[str]) -> Outcome:
    """A merge patch of what differs, under the UID and resourceVersion just read. A scaler that does not exist is
    said, not made: it may belong to another program."""
    stands = {name_of(body): body for body in list_scalers(task.kube, task.namespace).bodies}
    written, gone = [], []
    for wanted in task.document["scalers"]:
        name = f"{wanted['kind']} {wanted['name']}"
        if name not in names:
            continue
        if (body := stands.get(name)) is None:
            gone.append(name)
        elif patch := _patch(body, wanted["settings"]):
            metadata = body["metadata"]
            task.kube.patch(
                RESOURCES[body["kind"]],
                metadata["name"],
                metadata["namespace"],
                {**patch, "metadata": {**patch.get("metadata", {}), "uid": metadata["uid"]}},
                resource_version=metadata["resourceVersion"],
            )
            written.append(name)
    return Done(result={"written": written, "do_not_exist": gone})


def _patch(body: Mapping[str, Any], settings: Mapping[str, Any]) -> Json:
    """What to merge in so that the scaler says what was recorded; {} where it does."""
    patch: Json = {}
    _, spec = difference(body.get("spec") or {}, settings.get("spec") or {})
    if spec:
        patch["spec"] = spec
    # Only what belongs to scaling: one that was added since goes, those of others stay.
    now = settings_of(body).get("annotations") or {}
    _, annotations = difference(now, settings.get("annotations") or {})
    if annotations:
        patch["metadata"] = {"annotations": annotations}
    return patch
