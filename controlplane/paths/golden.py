"""Golden outputs as they are kept, and which of them a series compares with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from controlplane.fleet.models import Cluster
from controlplane.paths.asks import PARITY_TOKENS
from controlplane.paths.models import GoldenOutputs, Pool, ProbeSeries
from controlplane.paths.pool_settings import PoolSettings, read_settings
from policy.parity import Answer
from policy.probes.prompts import PROMPT_SET

Json = dict[str, Any]


def prompt_set_of(settings: PoolSettings) -> str:
    """What has to be equal for two answers to be answers to one question, beside the model and the salt: version of
    the prompts, the threshold that makes them longer, and how many tokens are asked for."""
    return f"{PROMPT_SET}/{settings.decider_tokens}/{PARITY_TOKENS}"


def find_golden(pool_id: int, settings: PoolSettings) -> GoldenOutputs | None:
    """The newest usable golden outputs that answers of this pool can be compared with."""
    rows = GoldenOutputs.objects.comparable(
        pool=pool_id, model=settings.model, prompt_set=prompt_set_of(settings)
    )
    return rows.first()


def golden_of_series(series: ProbeSeries, settings: PoolSettings) -> GoldenOutputs | None:
    """What a series compares with: chosen when it is planned, and kept to the end. None where the pool compares with
    something else, where there are none, and where they have been revoked meanwhile."""
    if series.kind != ProbeSeries.Kind.PARITY or settings.reference != "golden":
        return None
    if not series.plan:
        return find_golden(series.pool_id, settings)
    return GoldenOutputs.objects.usable().filter(pk=series.plan.get("golden") or 0).first()


def usable_golden(ids: Iterable[int]) -> dict[int, list[Json]]:
    """Those of these golden outputs that somebody vouches for, and who does."""
    rows = GoldenOutputs.objects.usable().filter(pk__in=list(ids))
    return dict(rows.values_list("pk", "verified_by"))


def pools_without_golden(cluster: Cluster, uids: Iterable[str]) -> set[str]:
    """UIDs of the pools among these that compare with golden outputs and have none to compare with."""
    rows = Pool.objects.present().filter(cluster=cluster, uid__in=list(uids), settings__reference="golden")
    found = {row.uid: (row.pk, read_settings(row.settings)) for row in rows.only("uid", "settings")}
    return {uid for uid, (pool, settings) in found.items() if find_golden(pool, settings) is None}


def salts_of(golden: GoldenOutputs | None) -> dict[str, str]:
    """Prompt → the salt in the text that was answered: only the same text gets the same answer."""
    return {prompt: each["salt"] for prompt, each in golden.answers.items()} if golden else {}


def answers_of(golden: GoldenOutputs | None) -> dict[str, tuple[Answer, ...]]:
    """Prompt → its golden answers."""
    if golden is None:
        return {}
    return {
        prompt: tuple(_unpacked(answer) for answer in each["answers"])
        for prompt, each in golden.answers.items()
    }


def packed(answer: Answer) -> Json:
    """An answer as JSON with one form for each number, so that a digest can cover it: six digits after the point."""
    return {
        "tokens": list(answer.tokens),
        "logprobs": [_text(each) for each in answer.logprobs],
        "alternatives": [
            {str(token): _text(each) for token, each in one.items()} for one in answer.alternatives
        ],
        "cut": answer.cut,
    }


def summary_of(golden: GoldenOutputs) -> Json:
    """What names golden outputs elsewhere, without their answers."""
    return {
        "id": golden.pk,
        "revision": golden.revision,
        "model": golden.model,
        "prompt_set": golden.prompt_set,
        "digest": golden.digest,
    }


def _unpacked(kept: Mapping[str, Any]) -> Answer:
    return Answer(
        tokens=tuple(kept["tokens"]),
        logprobs=tuple(float(each) for each in kept["logprobs"]),
        alternatives=tuple(
            {token: float(each) for token, each in one.items()} for one in kept["alternatives"]
        ),
        cut=kept["cut"],
        disaggregated=True,  # nothing else is recorded
    )


def _text(logprob: float) -> str:
    return f"{round(logprob, 6) + 0.0:.6f}"  # + 0.0: there is one zero
