"""The view on objects of a set with slices (newer LeaderWorkerSet managers; see tests/fixtures/sliced)."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from controlplane.fleet.rollout_state import RolloutState, judge_set
from controlplane.fleet.view import SetView, derive_set

FOLDER = Path(__file__).parents[2] / "fixtures" / "sliced"


def load(name: str) -> tuple[SetView, RolloutState]:
    items: list[dict[str, Any]] = json.loads((FOLDER / f"{name}.json").read_text())["items"]

    def of(kind: str) -> list[dict[str, Any]]:
        return [item for item in items if item["kind"] == kind]

    view = derive_set(of("DisaggregatedSet")[0], of("LeaderWorkerSet"), of("Pod"))
    return view, judge_set(view, now=datetime.now(UTC), stuck_after=timedelta(days=9999))


def test_two_slices_at_one_revision() -> None:
    view, state = load("settled")
    assert view.slice_keys == ("0", "1") == tuple(view.slices)
    assert view.target and view.target_certain
    assert view.counts() == {
        (key, view.target, name): size for key in "01" for name, size in (("prefill", 2), ("decode", 1))
    }
    assert all(role.ready == role.wanted == role.reported for role in view.places().values())
    assert len(view.members[view.target]) == 4
    assert state.name == "settled"
    assert view.hint["conditions"], "the newer manager's status is carried along"


def test_a_canary_slice_is_done_and_the_other_waits_at_nothing() -> None:
    view, state = load("canary")
    assert set(view.slices["0"].revisions) == {view.target}
    old = next(label for label in view.slices["1"].revisions if label != view.target)
    assert {place: count for place, count in view.counts().items() if place[0] == "1"} == {
        ("1", old, "prefill"): 2,
        ("1", old, "decode"): 1,
        ("1", view.target, "prefill"): 0,
        ("1", view.target, "decode"): 0,
    }
    assert state.name == "active"
    assert all(sentence.startswith("slice 1:") for sentence in state.reasons["active"])


def test_children_without_a_slice_are_slice_0() -> None:
    view, _ = load("adopted")
    assert {place[0] for place in view.counts()} == {"0"}
    assert view.target


def test_an_outside_scaler_decides() -> None:
    view, state = load("external")
    assert view.desired["decode"] is None
    assert view.desired["prefill"] == 2
    assert state.name == "settled"


@pytest.mark.parametrize("name", ["settled", "canary", "adopted", "external"])
def test_every_pod_is_found_in_its_group(name: str) -> None:
    items = json.loads((FOLDER / f"{name}.json").read_text())["items"]
    view, _ = load(name)
    shown = {pod.name for role in view.places().values() for group in role.groups for pod in group.pods}
    assert shown == {item["metadata"]["name"] for item in items if item["kind"] == "Pod"}
