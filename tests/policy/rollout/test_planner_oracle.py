"""Thousands of generated rollouts against the planner of the DisaggregatedSet controller itself.

The oracle is compiled from sigs.k8s.io/lws and speaks JSON lines (deploy/rig/gomod/lws/planner).
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from policy.rollout.planner import Row, next_row, plan

pytestmark = pytest.mark.rig

SEED = 20260
WHOLE_PLANS = 6_000
SINGLE_STEPS = 12_000


@pytest.fixture(scope="module")
def oracle() -> Path:
    """The compiled planner; built when Go is there, skipped with a reason when it cannot be had."""
    from deploy.rig import build

    program = next(each for each in build.PROGRAMS if each.name == "planner-oracle")
    built = build.module_folder(program.module) / program.name
    if not built.exists() and shutil.which("go") is None:
        reason = "NOT COMPARED WITH THE UPSTREAM PLANNER: planner-oracle is not built and Go is not on PATH"
        if os.environ.get("LOCKSTEP_REQUIRE_RIG") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return build.binary(program.name)


def ask(oracle: Path, questions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    done = subprocess.run([oracle], input=lines, capture_output=True, text=True, timeout=240, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(questions)
    assert not [answer for answer in answers if "error" in answer]
    return answers


def rollout(chance: random.Random, largest: int) -> dict[str, list[int]]:
    """Two to five roles, every shape: equal, mixed, roles added or removed, small and large paces."""
    roles = chance.randint(2, 5)
    initial = [chance.randint(0, largest) for _ in range(roles)]
    target = list(initial) if chance.random() < 0.4 else [chance.randint(0, largest) for _ in range(roles)]
    surge = [chance.choice([0, 1, 1, 2, 3, chance.randint(0, largest + 1)]) for _ in range(roles)]
    unavailable = [chance.choice([0, 0, 1, 2, chance.randint(0, largest + 1)]) for _ in range(roles)]
    if chance.random() < 0.3:
        surge = [0] * roles
    for role in range(roles):
        if surge[role] == 0 and unavailable[role] == 0:
            unavailable[role] = 1
    return {"initial": initial, "target": target, "surge": surge, "unavailable": unavailable}


def counts(rows: Sequence[Row]) -> list[dict[str, list[int]]]:
    return [{"old": list(row.old), "new": list(row.new)} for row in rows]


def test_whole_plans(oracle: Path) -> None:
    chance = random.Random(SEED)
    cases = [rollout(chance, chance.choice([3, 8, 20, 60])) for _ in range(WHOLE_PLANS)]
    cut = 0
    for case, answer in zip(cases, ask(oracle, cases), strict=True):
        expected = answer["steps"]
        got = counts(plan(**case))
        # The simulation gives up after this many rows; the controller and our plan go on to the end.
        if len(expected) == 2 * max(case["initial"] + case["target"]) + 11:
            cut += len(got) > len(expected)
            got = got[: len(expected)]
        assert got == expected, case
    assert cut < WHOLE_PLANS / 10


def test_next_row_from_any_state(oracle: Path) -> None:
    chance = random.Random(SEED + 1)
    cases = []
    for _ in range(SINGLE_STEPS):
        largest = chance.choice([3, 8, 20])
        case = rollout(chance, largest)
        above = 1 if chance.random() < 0.1 else 0  # states above the initial counts are cut back first
        case["old"] = [chance.randint(0, i + above) for i in case["initial"]]
        case["new"] = [chance.randint(0, max(t, 1)) for t in case["target"]]
        cases.append(case)
    kinds = set()
    for case, answer in zip(cases, ask(oracle, cases), strict=True):
        row = next_row(**case)
        assert (counts([row])[0] if row else None) == answer["step"], case
        kinds.add(row.kind if row else "none")
    assert kinds == {"none", "clamp", "final", "up", "drain", "force"}


def test_ten_roles_with_a_thousand_groups(oracle: Path) -> None:
    chance = random.Random(SEED + 2)
    cases = [
        {"initial": [1000] * 10, "target": [1000] * 10, "surge": [1] * 10, "unavailable": [0] * 10},
        {
            "initial": [chance.randint(100, 1000) for _ in range(10)],
            "target": [chance.randint(100, 1000) for _ in range(10)],
            "surge": [chance.randint(1, 4) for _ in range(10)],
            "unavailable": [0] * 10,
        },
    ]
    for case, answer in zip(cases, ask(oracle, cases), strict=True):
        assert counts(plan(**case))[: len(answer["steps"])] == answer["steps"]
