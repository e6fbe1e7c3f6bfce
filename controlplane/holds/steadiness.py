"""Whether what a step looks at stays the same from look to look, and for how long: pods that neither restart nor
flicker, sets that do not move."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from controlplane.paths.objects import restarts_of

Json = dict[str, Any]


def ready_condition(pod: Mapping[str, Any]) -> Json:
    """The pod's Ready condition; empty where it has none yet."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == "Ready"), {})


def pod_sign(pod: Mapping[str, Any]) -> list[Any]:
    """What changes when a pod restarts or its readiness flickers, even between two looks."""
    ready = ready_condition(pod)
    since = ready.get("lastTransitionTime", "")
    return [pod["metadata"]["uid"], ready.get("status", ""), since, restarts_of(pod)]


def same_since(
    kept: Mapping[str, Any] | None, *, step: int | str, sign: Any, now: datetime
) -> tuple[datetime, Json]:
    """Since when this step has seen this sign (JSON), and what to remember of it. `kept` is what was remembered last;
    that of another step, or of another sign, begins anew."""
    kept = kept or {}
    same = kept.get("step") == step and kept.get("sign") == sign
    since = datetime.fromisoformat(kept["since"]) if same else now
    return since, {"step": step, "sign": sign, "since": since.isoformat()}
