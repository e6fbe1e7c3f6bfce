"""Looks at a request path: a probe series with the Run that carries it out. Asked for by steps and by people."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import partial

from django.conf import settings
from django.db import transaction

from controlplane.access.models import User
from controlplane.audit.actor import Actor
from controlplane.audit.services import record_event
from controlplane.errors import NotFound, Refused, Unavailable
from controlplane.kube.client import Kube
from controlplane.operations.clock import database_now
from controlplane.operations.contract import Again, Json
from controlplane.operations.models import FINISHED, Run, Step
from controlplane.operations.runs import PATIENCE, create_run
from controlplane.paths.models import Pool, ProbeSeries
from controlplane.paths.probing import run_series
from controlplane.paths.services import fail_series, open_series
from controlplane.paths.turns import end_turn, take_turn

RUN_SERIES = "paths.run_series"
TURN_EVERY = 1.0  # seconds; how often a series asks for its turn while another one sends through the pool


def ask_series(
    *,
    pool: Pool,
    kind: str,
    subject_kind: str,
    subject_id: str,
    key: str,
    revision: str = "",
    step: tuple[int, int] | None = None,
) -> ProbeSeries:
    """The series of this look; the first who asks has it carried out. Asked twice it is the same series.

    `step` is the step that asks, as (id, attempt): when it is over or done anew, the series stops. Raises Refused
    `pool-not-probed`.
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
            args: Json = {"series": series.pk, **({"step": list(step)} if step else {})}
            create_run(kind=RUN_SERIES, args=args, cluster=pool.cluster, namespace=pool.namespace)
    return series


def carry_on_series(
    *, kube: Kube | None, now: datetime, series: int, step: list[int] | None = None
) -> Json | Again:
    """A Run: one piece of a series, when it is its turn at the pool. Raises Refused `series-superseded` where the step
    that asked is over, and as `probing.run_series` does."""
    still_asked = partial(_refuse_superseded, step)
    found = ProbeSeries.objects.only("state", "pool_id").get(pk=series)
    if found.state != ProbeSeries.State.RUNNING:
        return {"state": found.state}
    still_asked()
    lasts: float = settings.LOCKSTEP_TASK_HARD_LIMIT * PATIENCE
    turn = take_turn(pool_id=found.pool_id, series_id=found.pk, lasts_s=lasts)
    if turn is None:
        return Again(TURN_EVERY)
    try:
        done = run_series(kube=kube, now=now, series=series, still_asked=still_asked)
    finally:
        end_turn(pool_id=found.pool_id, turn=turn)
    return Again() if done is None else done


def series_failed(*, problem: Json, series: int, step: list[int] | None = None) -> None:
    """The Run gave up, or was told to: so does the series."""
    fail_series(series_id=series, problem=problem)


def _refuse_superseded(step: list[int] | None) -> None:
    """Ending, turning round, retrying and adopting all leave their mark on the step: pending, and this attempt."""
    if step is None:
        return
    asking = Step.objects.filter(pk=step[0], attempt=step[1], state=Step.State.PENDING)
    if not asking.exclude(operation__state__in=FINISHED).exists():
        raise Refused(
            "series-superseded",
            "The step that asked for this series is over or is done anew, so no more of it is sent.",
            next_action="Nothing to do; look at the operation's newer series.",
        )


def close_abandoned(series: Iterable[ProbeSeries]) -> None:
    """Fail every running series whose Run has ended, or is not kept any more: nobody will carry it on, and whoever
    waits would wait for ever."""
    for each in series:
        runs = Run.objects.filter(kind=RUN_SERIES, args__series=each.pk)
        if not runs.filter(state=Run.State.WAITING).exists():
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
