"""Fence numbers: (transitions of the cluster's installation Lease, one database sequence), as one integer.

A number is `lease_transitions * 10**12 + nextval(lockstep_fence)`. Both parts only ever grow, so numbers do,
across claims, operations and takeovers. The only way for the world to show a number above ours is a database
that was put back to an earlier state; `raise_above` is how a person says that this database goes on all the
same.
"""

from __future__ import annotations

from django.db import connection

from controlplane.errors import Refused
from controlplane.fleet.models import Cluster
from policy.fencing import PER_TRANSITION as PER_TRANSITION

# setval and a concurrent nextval are not ordered; nobody draws this many numbers between two statements.
_LEAP = 10**6


def next_fence(cluster: Cluster) -> int:
    """A number above every number that this database has given out for the cluster."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT lease_transitions * %s::bigint + nextval('lockstep_fence')"
            " FROM fleet_cluster WHERE id = %s",
            [PER_TRANSITION, cluster.pk],
        )
        row = cursor.fetchone()
    return int(row[0])


def raise_above(number: int, *, lease_transitions: int) -> None:
    """Make every later number exceed `number`, as seen in a cluster whose Lease shows `lease_transitions`.

    Never lowers the sequence. Raises Refused `number-not-plausible` for a number that no claim under that
    Lease can have drawn: anyone who may edit a set can write one on it, and following it would use the
    sequence up.
    """
    drawn = number - lease_transitions * PER_TRANSITION
    if drawn >= PER_TRANSITION:
        raise Refused(
            "number-not-plausible",
            f"Fence number {number} cannot come from an installation: its Lease has changed hands"
            f" {lease_transitions} times.",
            next_action="Find out who wrote it, and have a break-glass account put the number right.",
            number=number,
            lease_transitions=lease_transitions,
        )
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT setval('lockstep_fence', %s) FROM lockstep_fence WHERE last_value <= %s",
            [drawn + _LEAP, drawn],
        )
