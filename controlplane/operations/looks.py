"""Looks at a request path: a probe series with the Run that carries it out. Asked for by steps and by people."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import transaction

from controlplane.access.models import User
from controlplane.audit.actor import Actor
from controlplane.audit.services import record_event
from controlplane.errors import NotFound, Refused, Unavailable
from controlplane.operations.clock import database_now
from controlplane.operations.models import Run
from controlplane.operations.runs import create_run
from controlplane.paths.models import Pool, ProbeSeries
from controlplane.paths.services import fail_series, open_series

RUN_SERIES = "paths.run_series"


def ask_series(
    *, pool: Pool, kind: str, subject_kind: str, subject_id: str, key: str, revision: str = ""
) -> ProbeSeries:
    """The series of this look; the first who asks has it carried out. Asked twice it is the same series.

    Raises Refused `pool-not-probed`.
    """
    with transaction.atomic():
        series, made = open_series(
            pool=pool,
            kind=kind,
            subject_kind=subject_kind,
            subject_id=subject_id,
            key=key,
            revision=revision,
        )
        if made:
            create_run(
                kind=RUN_SERIES, args={"series": series.pk}, cluster=pool.cluster, namespace=pool.namespace
            )
    return series


def close_abandoned(series: Iterable[ProbeSeries]) -> None:
    """Fail every running series whose Run has ended: nobody will carry it on, and whoever waits would wait for ever."""
    for each in series:
        runs = Run.objects.filter(kind=RUN_SERIES, args__series=each.pk)
        if runs.exists() and not runs.filter(state=Run.State.WAITING).exists():
            lost = Unavailable("series-abandoned", "Its run ended before it was judged.")
            fail_series(series_id=each.pk, problem=lost.as_problem())


def request_series(*, pool_id: int, kind: str, revision: str, user: User, actor: Actor) -> ProbeSeries:
    """A look that a person or program asks for; each is a new one. Raises NotFound, Refused `pool-not-probed`."""
    with transaction.atomic():
        pool = Pool.objects.present().select_related("cluster").filter(pk=pool_id).first()
        if pool is None:
            raise NotFound("not-found", f"There is no pool {pool_id}.")
        if running := pool.series.filter(state=ProbeSeries.State.RUNNING, subject_kind="person").first():
            raise Refused(
                "series-running",
                f"Series {running.pk} is being sent through this pool already.",
                next_action="Wait for its verdict.",
                series=running.pk,
            )
        series = ask_series(
            pool=pool,
            kind=kind,
            subject_kind="person",
            subject_id=str(user.pk),
            key=database_now().isoformat(),
            revision=revision,
        )
        record_event(
            actor=actor,
            action="pool.probe",
            target_kind="pool",
            target_id=f"{pool.namespace}/{pool.name}",
            after={"series": series.pk, "kind": kind, "revision": revision},
        )
    return series
