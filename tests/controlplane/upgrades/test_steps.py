"""Every step that can be planned exists, and takes what it is planned with."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.operations.contract import PlannedStep
from controlplane.upgrades import checking, services, starting
from controlplane.upgrades.steplist import ending_steps, upgrade_steps
from tests.controlplane.upgrades.given import checked, live_set, pair, sliced, with_image
from workers.steps import RUNS, STEPS

ROOM = Path(inspect.getfile(starting)).parent
VERBS = ("abort_step", "stop_step", "adopt_step")


def planned_in_source() -> Iterator[tuple[str, str, set[str] | None]]:
    """(where, name, argument names or None where they are a variable) of every PlannedStep(...) in the room."""
    for path in sorted(ROOM.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "PlannedStep"):
                continue
            first = node.args[0]
            assert isinstance(first, ast.Constant), (
                f"{path.name}:{node.lineno}: a step is planned by its literal name"
            )
            given: set[str] | None = set()
            if len(node.args) > 1:
                second = node.args[1]
                plain = isinstance(second, ast.Dict) and all(
                    isinstance(key, ast.Constant) for key in second.keys
                )
                given = {key.value for key in second.keys} if plain else None  # type: ignore[attr-defined,union-attr]
            yield f"{path.name}:{node.lineno}", first.value, given


PLANNED = list(planned_in_source())


def takes(name: str, args: set[str]) -> None:
    """Fails unless the registered function can be called with exactly these."""
    signature = inspect.signature(inspect.unwrap(STEPS[name].run))
    signature.bind("context", **dict.fromkeys(args))


@pytest.mark.parametrize(
    ("where", "name", "args"), PLANNED, ids=[f"{name}@{where}" for where, name, _ in PLANNED]
)
def test_a_step_that_is_planned_is_registered_with_these_arguments(
    where: str, name: str, args: set[str] | None
) -> None:
    assert name in STEPS, f"{where} plans {name}, which nobody carries out"
    if args is not None:
        takes(name, args)


def test_no_step_of_this_room_is_registered_that_nobody_plans() -> None:
    source = (ROOM / "services.py").read_text(encoding="utf-8")
    by_verb = {
        keyword.value.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg in VERBS and isinstance(keyword.value, ast.Constant)
    }
    assert len(by_verb) == len(VERBS)
    planned = {name for _, name, _ in PLANNED} | by_verb
    assert {name for name in STEPS if name.startswith("upgrades.")} <= planned <= set(STEPS)
    for name in by_verb:
        takes(name, set())


def steps_of(
    *, slice_order: str = "together", sliced_set: bool = False, **options: Any
) -> tuple[PlannedStep, ...]:
    live = sliced("settled")[0] if sliced_set else live_set(pair())
    plan = checked(live, with_image(live.roles), slice_order=slice_order, **options)
    memory = starting.memory_for(plan, installation="here", hold_slots=[], excluded={})
    memory["settle"] = options.get("profile") == "fast"
    return upgrade_steps(memory)


@pytest.mark.parametrize("holds", [[], ["first-complete-row"], ["half"], ["every-row"]])
@pytest.mark.parametrize("profile", ["normal", "fast"])
@pytest.mark.parametrize(
    ("slice_order", "sliced_set"), [("together", False), ("together", True), ("one-by-one", True)]
)
def test_what_start_plans_can_be_carried_out(
    holds: list[str], profile: str, slice_order: str, sliced_set: bool
) -> None:
    steps = steps_of(holds=holds, profile=profile, slice_order=slice_order, sliced_set=sliced_set)
    for step in steps:
        takes(step.name, set(step.args))
    names = [step.name.split(".")[1] for step in steps]
    assert names[:5] == ["open_hold", "prove_hold", "capture", "publish_copies", "pause_scalers"], (
        "hold and proof, what stands on record, and nobody who scales, before the write"
    )
    assert names[5:7] == ["write_roles", "read_revision"]
    assert names[-6:] == ["release", "give_back_scalers", "capture", "publish_copies", "record", "finish"], (
        "what is captured has its scalers as they were"
    )
    assert ("settle_roles" in names) == (profile == "fast")
    assert names.index("verify") > max(i for i, name in enumerate(names) if name in {"reach_row", "hold"})


def test_every_row_is_raised_then_looked_at_and_nothing_is_raised_past_a_hold() -> None:
    steps = [step for step in steps_of(holds=["first-complete-row", "half"]) if "row" in step.args]
    raised = [step.args["row"] for step in steps if step.name == "upgrades.raise_row"]
    assert raised == list(range(1, len(raised) + 1))
    for before, after in zip(steps, steps[1:], strict=False):
        if after.name == "upgrades.raise_row":
            assert before.args["row"] == after.args["row"] - 1
            assert before.name in {"upgrades.reach_row", "upgrades.hold"}
        else:
            assert before.args["row"] == after.args["row"]
    held = {step.args["row"]: step.args["rules"] for step in steps if step.name == "upgrades.hold"}
    assert held == {1: ["first-complete-row"], 3: ["half"], 7: ["last-old-groups"]}


def test_services_come_once_with_the_first_whole_row_and_before_its_hold() -> None:
    steps = steps_of(holds=["every-row"])
    names = [(step.name.split(".")[1], step.args.get("row")) for step in steps]
    place = names.index(("publish_services", None))
    assert names[place - 1] == ("reach_row", 1)
    assert [name for name, _ in names[place + 1 : place + 3]] == ["prove_path", "hold"]
    assert [name for name, _ in names].count("publish_services") == 1


def test_slices_one_by_one_take_their_rows_in_turn() -> None:
    steps = steps_of(slice_order="one-by-one", sliced_set=True)
    turns = [tuple(step.args["slices"]) for step in steps if "slices" in step.args]
    assert set(turns) == {("0",), ("1",)} and turns == sorted(turns)
    together = steps_of(sliced_set=True)
    assert {tuple(step.args["slices"]) for step in together if "slices" in step.args} == {("0", "1")}


def test_runs_are_registered_with_their_arguments() -> None:
    run = RUNS[services.CHECK]
    inspect.signature(run.run).bind(kube=None, now=None, plan=1, version=1)
    assert run.run is checking.check_plan and run.failed is not None
    inspect.signature(run.failed).bind(problem={}, plan=1, version=1)


def test_the_ending_is_the_same_after_an_adoption() -> None:
    assert [step.name for step in ending_steps({"settle": False})][-1] == "upgrades.finish"
