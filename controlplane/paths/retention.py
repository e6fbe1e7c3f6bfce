"""What is let go of old series. A verdict, the groups it is about and who served which request stay for as long as
something may refer to them: update records and combinations name a series, and copy only what it came to."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import TypeVar

from django.db import connection, models, transaction

from controlplane.audit.actor import worker
from controlplane.audit.clock import database_now
from controlplane.audit.services import record_event
from controlplane.paths.models import ProbeSeries

# By far the most of a series: every token of an answer, with the ones that came near. Verdicts hold the numbers.
TOKENS = ["tokens", "logprobs", "alternatives"]
_STRIP = """
UPDATE paths_probeseries SET pruned_at = %s, results = (
    SELECT coalesce(jsonb_agg(answer - %s::text[] ORDER BY place), '[]'::jsonb)
    FROM jsonb_array_elements(results) WITH ORDINALITY AS answers (answer, place)
)
WHERE id = ANY(%s)
"""
Rows = TypeVar("Rows", bound=models.Model)


def prune_series(*, before: datetime, unfinished: Collection[str], limit: int) -> int:
    """Let go of what nobody needs of at most `limit` series that ended before a time, oldest first; how many.

    A person's series goes as a whole, unless something refers to it; of others the tokens of the answers go. Series of
    `unfinished` operations (their ids) stay as they are. One small transaction, with its audit row.
    """
    with transaction.atomic():
        ended = ProbeSeries.objects.filter(pruned_at=None, finished_at__lt=before)
        due = ended.exclude(state=ProbeSeries.State.RUNNING).exclude(
            subject_kind="operation", subject_id__in=unfinished
        )
        page = due.order_by("finished_at").select_for_update(skip_locked=True)
        keys = list(page.values_list("pk", flat=True)[:limit])
        if not keys:
            return 0
        persons = unreferred(ProbeSeries.objects.filter(pk__in=keys, subject_kind="person"))
        gone = sorted(persons.values_list("pk", flat=True))
        kept = sorted(set(keys) - set(gone))
        ProbeSeries.objects.filter(pk__in=gone).delete()
        with connection.cursor() as cursor:
            cursor.execute(_STRIP, [database_now(), TOKENS, kept])
        record_event(
            actor=worker("retention"),
            action="series.prune",
            target_kind="series",
            target_id=f"{min(keys)}-{max(keys)}",
            after={"deleted": gone, "without_tokens": kept, "ended_before": before.isoformat()},
        )
    return len(keys)


def unreferred(rows: models.QuerySet[Rows]) -> models.QuerySet[Rows]:
    """Those rows that no row of any table refers to, whatever room it is of."""
    for relation in rows.model._meta.related_objects:
        rows = rows.filter(**{f"{relation.name}__isnull": True})
    return rows
