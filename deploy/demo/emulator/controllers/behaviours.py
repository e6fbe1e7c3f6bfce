"""How a pod behaves: spelled as on the rig (deploy/rig/README.md, "How pods behave"), read from the pod itself."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from deploy.demo.emulator.controllers.names import annotations_of
from deploy.demo.emulator.controllers.settings import Times
from deploy.rig.stages import ANNOTATION, BEHAVIOURS

Doc = dict[str, Any]
# On a node: "gone" means that its kubelet is not there any more. Ours alone; the rig has no such thing.
KUBELET = f"{ANNOTATION}/kubelet"
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")


@dataclass(frozen=True)
class Behaviour:
    """``kind`` one of the rig's words, or "program" for a pod that the runner plays. All times in seconds:
    ``ready_s`` from the first status to Ready, ``period_s`` half a period of flicker and crash, ``end_s`` what it
    takes to end."""

    kind: str
    ready_s: float
    period_s: float
    end_s: float


def behaviour_of(pod: Doc, times: Times, programs: Collection[str] = ()) -> Behaviour:
    """What a pod is to do; ``programs`` are images (without tag) that the runner plays."""
    named = _first(pod, "behaviour", "RIG_BEHAVIOUR") or _word(pod)
    after = _seconds(
        _first(pod, "ready-after", "RIG_READY_AFTER") or _tag(pod, "late-?(?P<v>[0-9]+(?:ms|s|m))")
    )
    kind = named or ("late" if after is not None else "ready")
    if not named and _is_program(pod, programs):
        kind = "program"
    usual = times.late_s if kind == "late" else times.ready_s
    period = _seconds(_first(pod, "period", "RIG_PERIOD"))
    end = _seconds(_first(pod, "terminate-after", "RIG_TERMINATE_AFTER"))
    return Behaviour(
        kind=kind,
        ready_s=usual if after is None or kind != "late" else after,
        period_s=times.period_s if period is None else period,
        end_s=times.end_s if end is None else end,
    )


def repository(image: str) -> str:
    """An image reference without its tag and digest."""
    return re.sub(r"(:[^/:@]+)?(@.*)?$", "", image)


def _is_program(pod: Doc, programs: Collection[str]) -> bool:
    return any(repository(each["image"]) in programs for each in pod["spec"]["containers"])


def _first(pod: Doc, note: str, variable: str) -> str | None:
    found = annotations_of(pod).get(f"{ANNOTATION}/{note}")
    if found is not None:
        return found
    for container in pod["spec"]["containers"]:
        for entry in container.get("env") or ():
            if entry["name"] == variable:
                return str(entry.get("value", "")) or None
    return None


def _word(pod: Doc) -> str | None:
    words = "|".join(each for each in BEHAVIOURS if each != "ready")
    return _tag(pod, f"(?P<v>{words})(?:-?[0-9]+(?:ms|s|m))?")


def _tag(pod: Doc, pattern: str) -> str | None:
    """A word of an image tag; words are parted by - _ and dots."""
    whole = re.compile(f":(?:[^/@]*[-_.])?(?:{pattern})(?:[-_.@]|$)")
    for container in pod["spec"]["containers"]:
        if found := whole.search(container["image"]):
            return found["v"]
    return None


def _seconds(duration: str | None) -> float | None:
    """A Go duration such as "1m30s"; None where there is none."""
    found = _AMOUNT.findall(duration or "")
    return round(sum(float(number) * _UNITS[unit] for number, unit in found), 6) if found else None
