"""How long a rollout of 10 roles with 1,000 groups each takes to plan. Prints one JSON object.

    python tests/bench/planner.py

Exits 1 when the slowest case needs 100 ms or more.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from policy.rollout.planner import Row, executor_rows, next_row, plan

LIMIT_MS = 100.0
REPEATS = 9
ROLES = 10
GROUPS = 1000


def cases() -> Mapping[str, Mapping[str, Sequence[int]]]:
    """Shapes with the most rows: pace 1 on equal counts, unequal counts and changing counts."""
    uneven = [GROUPS - 91 * role for role in range(ROLES)]
    return {
        "equal": pace_one([GROUPS] * ROLES, [GROUPS] * ROLES),
        "uneven": pace_one(uneven, uneven),
        "mixed": pace_one(uneven, uneven[::-1]),
        "surge_0": {**pace_one(uneven, uneven), "surge": [0] * ROLES, "unavailable": [1] * ROLES},
    }


def pace_one(initial: Sequence[int], target: Sequence[int]) -> Mapping[str, Sequence[int]]:
    return {"initial": initial, "target": target, "surge": [1] * ROLES, "unavailable": [0] * ROLES}


def milliseconds(call: Callable[[], object]) -> float:
    """Median of several runs."""
    spent = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        spent.append((time.perf_counter() - start) * 1000)
    return round(statistics.median(spent), 3)


def measure(case: Mapping[str, Sequence[int]]) -> dict[str, float | int]:
    rows = plan(**case)
    middle: Row = rows[len(rows) // 2]
    return {
        "rows": len(rows),
        "plan_ms": milliseconds(lambda: plan(**case)),
        "executor_rows_ms": milliseconds(lambda: executor_rows(rows, target=case["target"])),
        "next_row_ms": milliseconds(lambda: next_row(old=middle.old, new=middle.new, **case)),
    }


def main() -> int:
    results = {name: measure(case) for name, case in cases().items()}
    slowest = max(result["plan_ms"] for result in results.values())
    passed = slowest < LIMIT_MS
    report = {
        "benchmark": "planner",
        "roles": ROLES,
        "groups": GROUPS,
        "cases": results,
        "slowest_plan_ms": slowest,
        "limit_ms": LIMIT_MS,
        "passed": passed,
    }
    print(json.dumps(report, indent=2))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
