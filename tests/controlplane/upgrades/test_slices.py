"""Slices on recorded objects: rows, steps and parameter keys; a slice that waits keeps its ceilings at 0."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.holds.live import LiveSet
from controlplane.holds.private_services import service_for
from controlplane.upgrades.starting import memory_for
from controlplane.upgrades.steplist import upgrade_steps
from controlplane.upgrades.steps.memory import Memory
from policy.rollout.box import Box, box_from_data
from tests.controlplane.upgrades.given import checked, sliced, with_image

Json = dict[str, Any]
NEW = "bbbb2222"


def started(**options: Any) -> tuple[LiveSet, Json]:
    """A settled set of two slices with 2 prefill and 1 decode groups each, and the memory of an upgrade of it."""
    live, _ = sliced("settled")
    plan = checked(live, with_image(live.roles), **options)
    return live, memory_for(plan, installation="here", hold_slots=[], excluded={})


def boxes(memory: Json) -> list[tuple[str, Json, Box]]:
    """(step, arguments, the box that stands after it) for every step that moves a slice."""
    found, rows = [], dict(memory["slice_rows"])
    for step in upgrade_steps(memory):
        if step.name == "upgrades.raise_row":
            box = Memory({**memory, "slice_rows": rows, "new": NEW}).next_box(**step.args)
            rows |= dict.fromkeys(step.args["slices"], step.args["row"])
            found.append((step.name, step.args, box))
    return found


def test_the_memory_names_both_slices_and_starts_both_at_row_0() -> None:
    live, memory = started()
    assert live.slices == memory["slices"] == ["0", "1"]
    assert memory["slice_rows"] == {"0": 0, "1": 0}
    assert memory["rows"][0][:2] == [[2, 1], [0, 0]] and memory["rows"][-1][:2] == [[0, 0], [2, 1]]


def test_the_first_box_stands_around_what_is_there() -> None:
    live, memory = started()
    box = Memory(memory).box()
    assert box.breaches(live.counts()) == []
    data = box.as_data()
    old = memory["old"]
    assert set(data) == {
        f"{kind}.{s}.{old}.{role}"
        for kind in ("floor", "ceil")
        for s in "01"
        for role in ("prefill", "decode")
    }
    assert box_from_data(data) == box


def test_one_by_one_the_slice_that_waits_may_not_start() -> None:
    live, memory = started(slice_order="one-by-one")
    old, last = memory["old"], len(memory["rows"]) - 1
    seen = boxes(memory)
    assert [args["slices"] for _, args, _ in seen] == [["0"]] * last + [["1"]] * last
    for _, args, box in seen:
        moving = args["slices"][0]
        for role, start, target in (("prefill", 2, 2), ("decode", 1, 1)):
            waits, done = ("1", "0") if moving == "0" else (None, "0")
            if waits:
                assert box.ceilings[waits, NEW, role] == 0, "a held slice keeps ceilings 0"
                assert box.floors[waits, old, role] == start, "and every group that serves"
            else:
                assert box.ceilings[done, NEW, role] == target and box.floors[done, old, role] == 0
    whole_canary = {
        ("0", NEW, "prefill"): 2,
        ("0", NEW, "decode"): 1,
        ("1", old, "prefill"): 2,
        ("1", old, "decode"): 1,
    }
    assert seen[last - 1][2].breaches(whole_canary) == []


def test_the_recorded_canary_is_inside_the_box_after_the_first_slice() -> None:
    """Slice 0 has finished; slice 1 has the new revision at 0 groups: what a real manager showed."""
    live, _ = sliced("canary")
    finished = next(key[1] for key, child in live.children.items() if key[0] == "0" and child.wanted)
    waiting = next(key[1] for key, child in live.children.items() if key[0] == "1" and child.wanted)
    _, memory = started(slice_order="one-by-one")
    last = len(memory["rows"]) - 1
    at_canary = Memory({**memory, "old": waiting, "new": finished, "slice_rows": {"0": last, "1": 0}})
    assert at_canary.box().breaches(live.counts()) == []
    behind = Memory({**memory, "old": waiting, "new": finished, "slice_rows": {"0": 0, "1": 0}})
    assert behind.box().breaches(live.counts()), "before its rows were allowed it would be a breach"


def test_together_both_slices_take_each_row_at_once() -> None:
    _, memory = started()
    for _, args, box in boxes(memory):
        assert args["slices"] == ["0", "1"]
        for key, count in box.ceilings.items():
            other = ("1" if key[0] == "0" else "0", *key[1:])
            assert box.ceilings[other] == count


@pytest.mark.parametrize("slice_order", ["together", "one-by-one"])
def test_holds_and_services_come_for_every_turn(slice_order: str) -> None:
    _, memory = started(slice_order=slice_order)
    steps = upgrade_steps(memory)
    turns = 2 if slice_order == "one-by-one" else 1
    names = [step.name for step in steps]
    assert names.count("upgrades.publish_services") == turns
    held = [(tuple(step.args["slices"]), step.args["row"]) for step in steps if step.name == "upgrades.hold"]
    assert len(held) == len(set(held)) and {slices for slices, _ in held} == (
        {("0",), ("1",)} if turns == 2 else {("0", "1")}
    )


def test_a_private_service_carries_its_slice() -> None:
    live, items = sliced("settled")
    recorded = {item["metadata"]["name"]: item for item in items if item["kind"] == "Service"}
    for child in live.children.values():
        made = service_for(live.body, child.body)
        real = recorded[made["metadata"]["name"]]
        assert made["spec"]["selector"] == real["spec"]["selector"]
        assert made["metadata"]["labels"] == {
            key: real["metadata"]["labels"][key] for key in made["metadata"]["labels"]
        }
        owner = real["metadata"]["ownerReferences"][0]
        assert made["metadata"]["ownerReferences"][0]["uid"] == owner["uid"]
        assert made["spec"]["clusterIP"] == real["spec"]["clusterIP"] == "None"


def test_the_way_back_covers_every_slice() -> None:
    live, _ = sliced("canary")
    finished = next(key[1] for key, child in live.children.items() if key[0] == "0" and child.wanted)
    waiting = next(key[1] for key, child in live.children.items() if key[0] == "1" and child.wanted)
    _, memory = started(slice_order="one-by-one")
    goal = {"prefill": 2, "decode": 1}
    box = Memory({**memory, "old": waiting, "new": finished, "goal_back": goal}).way_back(live)
    for slice_name in "01":
        for role, count in goal.items():
            assert box.ceilings[slice_name, waiting, role] == count
            assert box.floors.get((slice_name, finished, role), 0) == 0
    assert box.ceilings["1", finished, "prefill"] == 0 and box.ceilings["0", finished, "prefill"] == 2
