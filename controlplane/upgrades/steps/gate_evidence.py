"""Numbers of gates that do not come from the metric source: restarts of the new groups, and what probes found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from controlplane.fleet.names import created_at, read_time
from policy.gates import Gate, Measurement, default_gates

Json = dict[str, Any]
# Gate → kind of series that brings its number.
SERIES: Mapping[str, str] = {"probe_success": "probe", "parity_bound": "parity"}
GREEN = ("green", "ok")
RED = ("red", "garbage")


def count_restarts(
    gate: Gate,
    pods: Sequence[Mapping[str, Any]],
    *,
    label: str,
    now: datetime,
    since: datetime | None,
    stood_from: datetime | None,
) -> Measurement:
    """Restarts of containers of a revision's pods in the gate's window, and pods that were made anew after the row
    had stood whole (`stood_from`, None: it has not yet): LeaderWorkerSet replaces a group whose container ended."""
    if not pods:
        return Measurement("no-data", revision=label, note="it has no pods")
    start = max(now - timedelta(seconds=gate.window_s), since or datetime.min.replace(tzinfo=now.tzinfo))
    again = 0
    for pod in pods:
        made = created_at(pod)
        if stood_from is not None and made is not None and made > max(start, stood_from):
            again += 1
        statuses = (pod.get("status") or {}).get("containerStatuses") or ()
        again += sum(_restarts(status, made, start) for status in statuses)
    return Measurement("value", float(again), len(pods), 0.0, revision=label)


def _restarts(status: Mapping[str, Any], made: datetime | None, start: datetime) -> int:
    count = int(status.get("restartCount") or 0)
    if not count or (made is not None and made >= start):
        return count
    ended = read_time(((status.get("lastState") or {}).get("terminated") or {}).get("finishedAt"))
    # Of an older pod only the last restart has a time; the others were before it.
    return int(ended is None or ended >= start)


def of_series(
    gate: Gate, evidence: Mapping[str, Any] | None, *, label: str, now: datetime
) -> list[Measurement]:
    """What the series of one place found, one measurement for each pool; empty where none of the kind was sent.

    `evidence` is an entry of the memory's `path_evidence`."""
    kind = SERIES[gate.metric]
    found: Iterable[Json] = (evidence or {}).get("series") or ()
    mine = [each for each in found if each["kind"] == kind and each["revision"] == label]
    if not mine or evidence is None:
        return []
    age = (now - datetime.fromisoformat(evidence["at"])).total_seconds()
    return [_of_one(each, label=label, age=age) for each in mine]


def with_margin(gate: Gate, evidence: Mapping[str, Any] | None) -> Gate:
    """The gate of parity with the margin that the pool's owners have set, unless the plan gives another limit."""
    usual = {each.id: each.threshold for each in default_gates("production")}
    margins = [
        float(margin)
        for each in (evidence or {}).get("series") or ()
        if each["kind"] == SERIES.get(gate.metric) and (margin := (each.get("numbers") or {}).get("margin"))
    ]
    if gate.metric != "parity_bound" or not margins or gate.threshold != usual[gate.id]:
        return gate
    return replace(gate, threshold=min(margins))


def _of_one(series: Mapping[str, Any], *, label: str, age: float) -> Measurement:
    numbers = series.get("numbers") or {}
    value, samples = numbers.get("value"), int(numbers.get("samples") or 0)
    name, said = f"{label} through {series['pool']}", str(series["sentence"])
    if series["verdict"] in RED:
        return Measurement(
            "value", value if value is not None else 0.0, samples, age, revision=name, finding=said
        )
    if value is None or series["verdict"] not in GREEN:
        return Measurement("no-data", revision=name, note=said.rstrip(".") or "the series has no verdict")
    return Measurement("value", float(value), samples, age, revision=name)


def numbers_of(kind: str, verdict: Mapping[str, Any]) -> Json:
    """The number of a judged series, for `path_evidence`: the part that succeeded, or the bound of parity."""
    if kind == "probe":
        judged = int(verdict.get("judged") or 0)
        value = int(verdict.get("succeeded") or 0) / judged if judged else None
        return {"value": value, "samples": judged}
    return {
        "value": verdict.get("bound"),
        "samples": int(verdict.get("prompts") or 0),
        "margin": verdict.get("margin"),
    }
