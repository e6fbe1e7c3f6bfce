"""What a restore has brought back: every part compared once more, and whether the same bits run."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from controlplane.holds.leftover import others_of
from controlplane.operations.contract import Done, Hold, Outcome, Wait
from controlplane.recovery.parts.task import Task, goal_of
from policy.recovery.diff import TRANSFER, WORKLOAD, diff_combination

Json = dict[str, Any]


def verify(task: Task) -> Outcome:
    """A look: nothing of what was recorded differs. Image IDs say same bits, same template, or cannot tell."""
    seen = task.see()
    if seen.live is None:
        task.writer.look()
        return Wait(1, "the set")
    short = seen.live.short_of(task.good, goal_of(task.document, seen.live))
    others = others_of(seen.live, task.good)
    if (short or others) and task.waited < task.stuck_after:
        return Wait(2, f"revision {task.good} to be complete and alone: {', '.join(short) or 'others go'}")
    diffs = diff_combination(task.document, seen.document)
    shown = [asdict(each) for each in diffs]
    differs = [each for each in diffs if each.verdict == "differs" and each.part != TRANSFER]
    if differs:
        said = "; ".join(f"{each.part} {each.name}: {', '.join(each.what)}" for each in differs)
        return Hold(
            code="restore-not-verified",
            sentence=f"Not everything is as recorded: {said}.",
            next_action="Put it right, then retry to look again; or abort: what was put back stays.",
            facts={"diff": shown},
        )
    workload = next(each for each in diffs if each.part == WORKLOAD)
    return Done(
        result={"bits": workload.verdict, "what": list(workload.what), "diff": shown},
        remember={"bits": {"verdict": workload.verdict, "what": list(workload.what)}, "diff_after": shown},
    )
