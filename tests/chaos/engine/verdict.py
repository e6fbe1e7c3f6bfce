"""What must hold after any chaos: every step committed once, every side effect made once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from django.db import connection

from controlplane.audit.models import AuditEvent
from controlplane.operations.models import Operation, Step


def finished(operations: Sequence[Operation]) -> bool:
    """Whether all of them have ended (or stand at a finding, which the verdict will show)."""
    going = Operation.objects.filter(pk__in=[one.pk for one in operations], state__in=["working", "waiting"])
    return not going.exists()


def assert_exactly_once(operations: Sequence[Operation], *, outcome: str = "succeeded") -> None:
    """Every operation ended so; every step was committed once and made its side effect once."""
    ids = [one.pk for one in operations]
    rows = Operation.objects.filter(pk__in=ids)
    wrong = [(one.pk, one.state, one.finding) for one in rows if one.state != outcome]
    assert not wrong, wrong
    assert not rows.filter(lease_until__isnull=False).exists()
    steps = Step.objects.filter(operation__in=ids)
    assert not steps.filter(state="pending").exists()
    done = {step.pk: step for step in steps.filter(state="done")}
    commits = Counter(
        (row.target_id, row.after["step"])
        for row in AuditEvent.objects.filter(target_kind="operation", actor_kind="worker")
        if int(row.target_id) in ids and row.after["effect"] in ("done", "finish")
    )
    assert commits == {(str(step.operation_id), step.index): 1 for step in done.values()}
    effects = _effects()
    doubled = {key: count for key, count in effects.items() if count > 1}
    assert not doubled, f"side effects made twice: {doubled}"
    wanted = {step.pk for step in done.values() if step.name == "toy.write"}
    assert {step for step, _ in effects} >= wanted, "a step was committed without its side effect"


def refused_writes() -> int:
    """How many writes the world refused for a stale number."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM toy_refused")
        return int(cursor.fetchone()[0])


def _effects() -> Counter[tuple[int, int]]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT step, attempt FROM toy_effects")
        return Counter((int(step), int(attempt)) for step, attempt in cursor.fetchall())
