"""One scaler paused, and one given back: each in a single write under the UID and resourceVersion that were read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controlplane.holds.scalers.mark import PAUSED, Mark, as_patch, last_other_writer, rest_digests
from controlplane.holds.scalers.seen import RESOURCES, Scaler, name_of
from controlplane.kube.client import Kube
from policy.rollout.scalers import (
    changed_keys,
    difference,
    give_back,
    merged,
    plan_pause,
    settings_of,
    with_settings,
)

Json = dict[str, Any]
STIRRED = "lockstep.dev/stirred"


@dataclass(frozen=True, slots=True)
class Holder:
    """For whom a scaler is paused."""

    operation: str
    installation: str
    fence: int
    set: Json


def pause_scaler(kube: Kube, scaler: Scaler, holder: Holder, *, inherited: Mark | None) -> Json | None:
    """Pause it and write down on it what was changed; the stored object, or None where it stands still by itself.

    `inherited` is the record of an operation that has ended: what was before that one is what will be given back. A dry
    run tells first what the API server will store, so that the record names every field, defaults included. Raises
    KubeError."""
    now = settings_of(scaler.body)
    original = now
    if inherited is not None:
        original = merged(now, give_back(inherited.original, inherited.paused, now).settings)
    plan = plan_pause(with_settings(scaler.body, original), scaler.target)
    if not plan.settings and inherited is None:
        return None
    change = difference(now, merged(original, plan.settings))[1]
    stored = _patch(kube, scaler.body, as_patch(change, {}), dry_run=True)
    before, after = difference(original, settings_of(stored))
    mark = Mark(
        operation=holder.operation,
        installation=holder.installation,
        fence=holder.fence,
        set=holder.set,
        original=before,
        paused=after,
        rest=rest_digests(stored, after),
    )
    return _patch(kube, scaler.body, as_patch(change, {PAUSED: mark.as_annotation(scaler.body)}))


def give_back_scaler(kube: Kube, body: Mapping[str, Any], mark: Mark) -> Json | None:
    """Put back what pausing changed and take the record away. What somebody has changed meanwhile stays and is
    returned, as {scaler, sentence, fields}; None where nobody did. Raises KubeError."""
    back = give_back(mark.original, mark.paused, settings_of(body))
    marked = PAUSED in (body["metadata"].get("annotations") or {})
    if back.settings or marked:
        _patch(kube, body, as_patch(back.settings, {PAUSED: None} if marked else {}))
    others = changed_keys(mark.rest, rest_digests(body, mark.paused))
    fields = [each.path for each in back.kept] + [f"spec.{key}" for key in others]
    if not fields:
        return None
    writer = last_other_writer(body)
    return {
        "scaler": name_of(body),
        "sentence": f"{name_of(body)} was changed while it was paused{f' (last writer {writer})' if writer else ''}:"
        f" {', '.join(fields)} stay as they are now, everything else is as before.",
        "fields": [{"path": each.path, "original": each.original, "now": each.now} for each in back.kept]
        + [{"path": f"spec.{key}"} for key in others],
    }


def stir(kube: Kube, body: Mapping[str, Any], fence: int) -> None:
    """Give an unchanged scaler a new resourceVersion, so that a pause still in flight, which was read before, fails."""
    stirred = _patch(kube, body, as_patch({}, {STIRRED: str(fence)}))
    _patch(kube, stirred, as_patch({}, {STIRRED: None}))


def _patch(kube: Kube, body: Mapping[str, Any], patch: Json, *, dry_run: bool = False) -> Json:
    metadata = body["metadata"]
    return kube.patch(
        RESOURCES[body["kind"]],
        metadata["name"],
        metadata["namespace"],
        {**patch, "metadata": {**patch.get("metadata", {}), "uid": metadata["uid"]}},
        resource_version=metadata["resourceVersion"],
        dry_run=dry_run,
    )
