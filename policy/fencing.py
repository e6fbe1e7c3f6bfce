"""Fence numbers: (transitions of a cluster's installation Lease, a number drawn under it), as one integer."""

from __future__ import annotations

PER_TRANSITION = 10**12


def first_number(transitions: int) -> int:
    """A number above every one that was drawn under fewer transitions."""
    return transitions * PER_TRANSITION
