"""The pace of a rollout that starts a revision whole beside what stands."""

from __future__ import annotations


def whole_surge(goal: int, standing: int) -> int:
    """Surge of one role so that the planner has two rows: everything new beside everything old, then nothing old.

    A surge that covers the larger side makes its number of batches 1, and growth by it always fits (digest 2.2). A
    percentage would be one of `goal` alone.
    """
    return max(goal, standing, 1)
