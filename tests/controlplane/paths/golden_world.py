"""A pool that compares with golden outputs, and parity series of it as workers leave them."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from controlplane.fleet.models import Cluster
from controlplane.paths import judging, probing
from controlplane.paths.golden import golden_of_series
from controlplane.paths.models import GoldenOutputs, Pool, ProbeSeries
from controlplane.paths.pool_settings import read_settings
from controlplane.paths.services import SeenPool, judge_series, record_pools, store_progress
from controlplane.paths.view import PoolView, find_path
from policy.probes import fixed_prompts
from tests.controlplane.paths.world import engines, objects

Json = dict[str, Any]
OLD, NEW = "aaaaaaaa", "bbbbbbbb"
SETTINGS = {"probe_url": "http://gateway", "model": "m", "reference": "golden"}


def make_pool(cluster: Cluster, **settings: Any) -> Pool:
    """The pool serving/chat, with how it is probed."""
    record_pools(cluster_id=cluster.pk, fence=5, seen=[SeenPool("pool-1", "serving", "chat", {})])
    Pool.objects.update(settings={**SETTINGS, **settings})
    return Pool.objects.get()


def view() -> PoolView:
    """What is live: both revisions."""
    counts = {(role, revision): 2 for role in ("prefill", "decode") for revision in (OLD, NEW)}
    path = find_path(objects("chat", pods=engines("chat", counts)), pool="chat")
    assert path is not None
    return path.pool("chat")


def answered(ask: Json, *, cached: int = 60, wrong: bool = False, status: int = 200) -> Json:
    """What is kept of an answer: what a model says is decided by the text, and the text by the salt."""
    word = sha256(f"{ask['prompt']} {ask['salt']}{' wrong' * wrong}".encode()).hexdigest()[:8]
    length = probing.PARITY_TOKENS
    return {
        "number": ask["number"],
        "status": status,
        "stamped": ask["revision"],
        "decode": "",
        "cached_tokens": cached,
        "finish": "length",
        "tokens": [f"{word}-{position}" for position in range(length)],
        "logprobs": [-0.1234567] * length,
        "alternatives": [{f"{word}-{position}": -0.1234567, "other": -4.0} for position in range(length)],
    }


def carried_out(
    pool: Pool, revision: str = OLD, *, subject: tuple[str, str] = ("person", "1"), key: str = "", **said: Any
) -> ProbeSeries:
    """A parity series that was sent and judged; `said` goes to `answered`."""
    settings = read_settings(pool.settings)
    series = ProbeSeries.objects.create(
        pool=pool,
        kind=ProbeSeries.Kind.PARITY,
        subject_kind=subject[0],
        subject_id=subject[1],
        key=key or str(ProbeSeries.objects.count()),
        revision=revision,
        created_at=pool.observed_at,
    )
    golden = golden_of_series(series, settings)
    plan = probing.make_plan(series, view(), settings, list(fixed_prompts()), golden)
    results = [answered(ask, **said) for ask in plan["asks"]]
    store_progress(series_id=series.pk, plan=plan, results=results, done_before=0)
    series.refresh_from_db()
    golden = golden_of_series(series, settings)
    verdict = judging.judge(series, series.plan, series.results, view(), settings, after={}, golden=golden)
    judge_series(series_id=series.pk, verdict=verdict)
    series.refresh_from_db()
    return series


def usable() -> list[int]:
    """Series whose answers are vouched for."""
    return list(GoldenOutputs.objects.usable().order_by("pk").values_list("series_id", flat=True))
