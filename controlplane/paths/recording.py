"""Writes on golden outputs: recorded when somebody vouches for a parity series, unusable when nobody does any more."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from django.db import transaction

from controlplane import events
from controlplane.access.etags import check_version
from controlplane.access.models import User
from controlplane.audit.actor import Actor
from controlplane.audit.clock import database_now
from controlplane.audit.services import record_event
from controlplane.errors import NotFound, Refused
from controlplane.paths.golden import packed, prompt_set_of, summary_of
from controlplane.paths.judging import answers_by_prompt
from controlplane.paths.models import GoldenOutputs, ProbeSeries
from controlplane.paths.pool_settings import read_settings
from policy.canonical import digest
from policy.parity import Answer, Unfit, judge_golden

Json = dict[str, Any]


def record_golden(*, series_id: int, reason: str, user: User, actor: Actor) -> GoldenOutputs:
    """A person vouches for the answers of a parity series: from now on others are compared with them.

    Said twice it is said. Raises NotFound, Refused `golden-unfit` where the answers can be no reference.
    """
    with transaction.atomic():
        series = _locked_series(series_id)
        return _vouch(series, {"kind": "person", "id": user.pk}, reason=reason, actor=actor)


def record_golden_of(
    *,
    subject: tuple[str, str],
    revision: str,
    pools: Collection[str],
    voucher: Json,
    actor: Actor,
) -> list[GoldenOutputs]:
    """What proved a revision becomes golden outputs: of each pool (by UID) the newest parity series of this subject
    (kind, id) that was green against golden outputs. `voucher` ({kind, id}) vouches for them. Within the transaction
    of the caller. A series that is green and can be no reference is passed over: the older one stays in use."""
    rows = ProbeSeries.objects.filter(
        kind=ProbeSeries.Kind.PARITY,
        subject_kind=subject[0],
        subject_id=subject[1],
        revision=revision,
        pool__uid__in=pools,
        state=ProbeSeries.State.JUDGED,
        verdict__verdict="ok",
        verdict__reference="golden",
    )
    newest = dict(rows.order_by("pk").values_list("pool_id", "pk"))
    found = []
    for series in map(_locked_series, sorted(newest.values())):
        if _unfit(series, voucher, *_judged(series)) is None:
            found.append(_vouch(series, voucher, reason="", actor=actor))
    return found


def withdraw_voucher(*, voucher: Json, reason: str, actor: Actor) -> None:
    """Who vouched for golden outputs does so no longer; those for which nobody else does are no reference any more.
    Within the transaction of the caller."""
    rows = GoldenOutputs.objects.select_for_update(no_key=True, of=("self",)).select_related("pool")
    for golden in rows.filter(verified_by__contains=[voucher]).order_by("pk"):
        _save_vouchers(
            golden,
            [each for each in golden.verified_by if not voucher.items() <= each.items()],
            "pool.withdraw_golden",
            reason=reason,
            actor=actor,
        )


def revoke_golden(*, golden_id: int, version: int, reason: str, actor: Actor) -> GoldenOutputs:
    """Take golden outputs out of use, whoever vouched for them. Raises NotFound, StaleEdit, Refused
    `golden-revoked`."""
    with transaction.atomic():
        rows = GoldenOutputs.objects.select_for_update(no_key=True, of=("self",)).select_related(
            "pool__cluster"
        )
        golden = rows.filter(pk=golden_id).first()
        if golden is None:
            raise NotFound("not-found", f"There are no golden outputs {golden_id}.")
        check_version(expected=version, actual=golden.version)
        if not golden.verified_by:
            raise Refused(
                "golden-revoked", f"Nobody vouches for {golden} any more.", next_action="Nothing to do."
            )
        _save_vouchers(golden, [], "pool.revoke_golden", reason=reason, actor=actor)
    return golden


def _locked_series(series_id: int) -> ProbeSeries:
    rows = ProbeSeries.objects.select_for_update(no_key=True, of=("self",)).select_related("pool__cluster")
    series = rows.filter(pk=series_id).first()
    if series is None:
        raise NotFound("not-found", f"There is no probe series {series_id}.")
    return series


def _judged(series: ProbeSeries) -> tuple[dict[str, tuple[Answer, ...]], Unfit | None]:
    if not series.plan:
        return {}, None
    found = answers_by_prompt(series.plan, series.results)
    return judge_golden({prompt: path for prompt, (path, _) in found.items()})


def _unfit(series: ProbeSeries, voucher: Json, whole: Mapping[str, Any], unfit: Unfit | None) -> Unfit | None:
    """Why a series can be no reference: it is no closed parity series of one revision, it is red, a person vouches for
    what an operation looks at to judge itself, or its answers are not fit."""
    if series.kind != ProbeSeries.Kind.PARITY or series.state != ProbeSeries.State.JUDGED:
        return Unfit(
            "not-judged",
            f"Series {series.pk} is no parity series that was carried out to its end.",
            "Name a judged series of kind parity.",
        )
    if series.pruned_at is not None:
        return Unfit(
            "pruned",
            f"Series {series.pk} is old: its answers are kept without their tokens.",
            "Have parity of the revision probed again.",
        )
    if not series.revision or series.verdict.get("reason") == "groups-changed":
        return Unfit(
            "not-one-revision",
            f"Series {series.pk} does not say which revision's groups gave its answers.",
            "Probe parity of one named revision while its groups stand.",
        )
    if (verdict := series.verdict.get("verdict")) in ("red", "garbage"):
        return Unfit(
            "judged-red",
            f"It is {verdict} beside its reference. {series.verdict.get('sentence', '')}".strip(),
            "Find out which of the two is wrong. Where it is the reference, revoke that, have parity probed again, and "
            "record the new series.",
        )
    if series.subject_kind == "operation" and voucher["kind"] == "person":
        return Unfit(
            "of-an-operation",
            f"Operation {series.subject_id} sent it to judge what it does: it would be compared with itself.",
            "Have parity of a revision that is known to be good probed by a person, and record that; what an operation "
            "saw is recorded when it verifies its combination.",
        )
    return unfit


def _vouch(series: ProbeSeries, voucher: Json, *, reason: str, actor: Actor) -> GoldenOutputs:
    known = GoldenOutputs.objects.select_for_update(no_key=True).filter(series=series).first()
    if known is not None:
        known.pool = series.pool  # read already
        if not any(voucher.items() <= each.items() for each in known.verified_by):
            vouchers = [*known.verified_by, voucher]
            _save_vouchers(known, vouchers, "pool.record_golden", reason=reason, actor=actor)
        return known
    whole, unfit = _judged(series)
    if (why := _unfit(series, voucher, whole, unfit)) is not None:
        raise Refused(
            "golden-unfit",
            f"The answers of series {series.pk} can be no golden outputs. {why.sentence}",
            next_action=why.next_action,
            reason=why.reason,
        )
    now, settings = database_now(), read_settings(series.plan["settings"])
    answers = _packed(series, whole)
    content = {"model": settings.model, "prompt_set": prompt_set_of(settings), "answers": answers}
    golden = GoldenOutputs.objects.create(
        pool=series.pool,
        series=series,
        revision=series.revision,
        digest=digest(content),
        verified_by=[voucher],
        verified_at=now,
        recorded_at=now,
        **content,
    )
    _tell(golden, "pool.record_golden", before=None, reason=reason, actor=actor)
    return golden


def _packed(series: ProbeSeries, whole: Mapping[str, Iterable[Answer]]) -> Json:
    salts = {ask["prompt"]: ask["salt"] for ask in series.plan["asks"]}
    return {
        prompt: {"salt": salts[prompt], "answers": [packed(answer) for answer in answers]}
        for prompt, answers in whole.items()
    }


def _save_vouchers(
    golden: GoldenOutputs, vouchers: list[Json], action: str, *, reason: str, actor: Actor
) -> None:
    before, golden.verified_by = {"verified_by": golden.verified_by}, vouchers
    if not before["verified_by"]:
        golden.verified_at, golden.revoked_reason = database_now(), ""
    elif not vouchers:
        golden.revoked_reason = reason
    golden.version += 1
    golden.save(update_fields=["verified_by", "verified_at", "revoked_reason", "version"])
    _tell(golden, action, before=before, reason=reason, actor=actor)


def _tell(golden: GoldenOutputs, action: str, *, before: Json | None, reason: str, actor: Actor) -> None:
    pool = golden.pool
    after = {**summary_of(golden), "series": golden.series_id, "verified_by": golden.verified_by}
    record_event(
        actor=actor,
        action=action,
        target_kind="pool",
        target_id=f"{pool.namespace}/{pool.name}",
        before=before,
        after=after,
        reason=reason,
    )
    events.publish(event="pool-changed", object_kind="pool", object_id=str(pool.pk))
