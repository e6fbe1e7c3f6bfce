"""Carrying out a probe series in pieces: send some probes, store what came, go on until all are sent, then judge.

A worker that is lost loses the answers of one piece; they are asked again, with the same salts and numbers.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from controlplane.errors import Refused
from controlplane.kube.client import Kube
from controlplane.paths.asks import PARITY_TOKENS, body_of, headers_of, kept_of
from controlplane.paths.counters import engine_addresses, read_counters
from controlplane.paths.golden import golden_of_series, salts_of
from controlplane.paths.judging import judge
from controlplane.paths.models import GoldenOutputs, ProbeSeries
from controlplane.paths.objects import read_objects
from controlplane.paths.pool_settings import PoolSettings, read_settings
from controlplane.paths.requests import Line, Reply, read_credential
from controlplane.paths.services import judge_series, store_progress
from controlplane.paths.view import EnginePod, PoolView, find_path
from policy.probes.prompts import Prompt, fixed_prompts, fresh_salts
from policy.probes.schedule import Group, plan_probes

Json = dict[str, Any]

PIECE_S = 15.0  # of sending; the last answers may take a request's timeout longer
AT_ONCE = 8
WARM_UP = 2
REFERENCE_REPEATS = 2  # also of the path where its answers may become golden outputs
PAIR_REPEATS = 2
TELL_APART_REPEATS = (
    6  # with fewer, one group that fails of four is no proof beside failures nobody can place
)
MOST_DIRECT = 120
PREFILLER = "x-prefiller-host-port"


def run_series(
    *, kube: Kube | None, now: datetime, series: int, still_asked: Callable[[], None] = lambda: None
) -> Json | None:
    """One piece of a series; None while there is more to send, else a short summary. Raises LockstepError where it
    cannot be run at all, KubeError where the cluster does not answer, and what `still_asked` raises where nobody
    waits for the verdict any more."""
    found = ProbeSeries.objects.select_related("pool__cluster").get(pk=series)
    if found.state != ProbeSeries.State.RUNNING or kube is None:
        return {"state": found.state}
    # What is looked at stays the same to the end: an edit of the settings is for the next series.
    settings = read_settings(found.plan.get("settings") or found.pool.settings)
    pool = read_pool(kube, found)
    prompts = {each.id: each for each in fixed_prompts(longer_than=settings.decider_tokens)}
    golden = golden_of_series(found, settings)
    plan = found.plan or make_plan(found, pool, settings, list(prompts.values()), golden)
    due = plan["asks"][len(found.results) :]
    answers = _send(due, prompts, settings, pool) if due else []
    if answers and not store_progress(
        series_id=found.pk, plan=plan, results=answers, done_before=len(found.results)
    ):
        return None  # another worker has gone on: look again what is left
    if len(answers) < len(due):
        return None
    still_asked()
    places = direct_addresses(pool.pods, settings, pool)
    results = [*found.results, *answers]
    after = read_counters(places) if found.kind == ProbeSeries.Kind.PROBE else {}
    verdict = judge(found, plan, results, pool, settings, after=after, golden=golden)
    if more := _unseen_asks(plan, verdict, places):
        filled = {**plan, "asks": [*plan["asks"], *more], "filled": True}
        store_progress(series_id=found.pk, plan=filled, results=[], done_before=len(results))
        return None
    judge_series(series_id=found.pk, verdict=verdict)
    return {"state": "judged", "verdict": verdict["verdict"]}


def read_pool(kube: Kube, series: ProbeSeries) -> PoolView:
    """The pool as it is now. Raises Refused `pool-gone`."""
    path = find_path(read_objects(kube, series.pool.namespace), pool=series.pool.name)
    pool = path.pool(series.pool.name) if path else None
    if pool is None or pool.uid != series.pool.uid:
        raise Refused("pool-gone", f"The pool {series.pool.namespace}/{series.pool.name} no longer exists.")
    return pool


def groups_of(pool: PoolView, revision: str) -> list[EnginePod]:
    """The ready groups behind the pool that a probe can reach: of one revision, or of all."""
    return [pod for pod in pool.pods if pod.in_pool and pod.ready and revision in ("", pod.revision)]


def make_plan(
    series: ProbeSeries,
    pool: PoolView,
    settings: PoolSettings,
    prompts: Sequence[Prompt],
    golden: GoldenOutputs | None = None,
) -> Json:
    """What to ask, in order, and which golden outputs the answers are compared with. Raises Refused where nothing of
    the revision could answer, or where it cannot be pinned."""
    pods = groups_of(pool, series.revision)
    if series.revision and not pool.router.settings.strict_header:
        raise Refused(
            "revision-not-pinnable",
            f"The router of {pool.name} has no strict revision header, so {series.revision} cannot be probed alone.",
            next_action="Add a strict headerSelector for the revision label to the rollout screener.",
        )
    if not pods:
        raise Refused("no-groups", f"No ready group of {series.revision or pool.name} is behind the pool.")
    # Never the same prompts twice, not even after a restored database: an engine may remember them. The texts of golden
    # outputs are sent again; what keeps them apart is in asks.body_of.
    seed = secrets.randbits(63)
    kept: Json = {
        "settings": asdict(settings),
        "groups": [[pod.name, pod.role, pod.revision, pod.uid, pod.restarts] for pod in pods],
    }
    if series.kind == ProbeSeries.Kind.PARITY:  # answers are compared, counters are not looked at
        asks = _parity_asks(series.revision, _asked_of(pods, settings, len(prompts)), prompts, golden, seed)
        return {**kept, "asks": asks, "before": {}, "golden": golden.pk if golden else None}
    before = read_counters(direct_addresses(pods, settings, pool))
    return {**kept, "asks": _probe_asks(series, pods, prompts, settings, seed), "before": before}


def _probe_asks(
    series: ProbeSeries,
    pods: Sequence[EnginePod],
    prompts: Sequence[Prompt],
    settings: PoolSettings,
    seed: int,
) -> list[Json]:
    schedule = plan_probes(
        [Group(pod.name, pod.role, pod.revision) for pod in pods],
        prompts,
        warmup=WARM_UP,
        cap_per_second=settings.rate,
        seed=seed,
    )
    # Unpinned probes are sent as any client's; the schedule's revisions only count how many there are.
    pinned = {"revision": series.revision} if not series.revision else {}
    return [{**asdict(probe), **pinned} for probe in schedule.probes]


def _unseen_asks(plan: Json, verdict: Json, places: Mapping[str, str]) -> list[Json]:
    """Groups that the router did not pick, and every group where failures follow nothing (answers through the gateway
    name no prefill group), are asked as its sidecar would: a decode group with a prefill address. Once; what was
    asked so did not come through the gateway, and the evidence says which."""
    groups = [group for each in plan["groups"] if (group := Group(*each[:3])).id in places]
    missing = [group for group in map(_as_group, verdict.get("missing") or ()) if group.id in places]
    repeats = PAIR_REPEATS
    if verdict.get("doubts") and groups:
        missing = groups
        repeats = max(PAIR_REPEATS, min(TELL_APART_REPEATS, MOST_DIRECT // len(groups)))
    if plan.get("filled") or not missing:
        return []
    kept = [ask for ask in plan["asks"] if not ask["warmup"]]
    asks: list[Json] = []
    for place, group in enumerate(missing):
        for peer in _peers(group, groups, repeats, first=place):
            pair = (group.id, peer) if group.role == "prefill" else (peer, group.id)
            like = kept[(len(asks)) % len(kept)]
            number = len(plan["asks"]) + len(asks)
            asks.append(
                {
                    **like,
                    "prefill": pair[0],
                    "pod": pair[1],
                    "number": number,
                    "salt": f"{like['salt']}-{number}",
                }
            )
    return asks


def _peers(group: Group, groups: Sequence[Group], count: int, *, first: int) -> list[str]:
    """The other halves of so many requests, in turn; groups begin at different ones, so that pairs are many."""
    other = [
        each.id
        for each in groups
        if each.revision == group.revision and (each.role == "prefill") != (group.role == "prefill")
    ]
    return [other[(first + turn) % len(other)] for turn in range(count if other else 0)]


def _as_group(found: Mapping[str, Any]) -> Group:
    return Group(found["id"], found["role"], found["revision"])


def _asked_of(pods: Sequence[EnginePod], settings: PoolSettings, prompts: int) -> list[list[str]]:
    """For each prompt who answers it: decode pods by name, and "" for the path. Beside the path twice the reference;
    or, where the reference is golden outputs, the path twice: its answers may be the next ones."""
    decodes = [pod.name for pod in pods if pod.role != "prefill"]
    if settings.reference != "direct" or not decodes:
        return [[""] * (REFERENCE_REPEATS if settings.reference == "golden" else 1)] * prompts
    return [
        ["", *(decodes[(index + turn) % len(decodes)] for turn in range(REFERENCE_REPEATS))]
        for index in range(prompts)
    ]


def _parity_asks(
    revision: str,
    asked: Sequence[Sequence[str]],
    prompts: Sequence[Prompt],
    golden: GoldenOutputs | None,
    seed: int,
) -> list[Json]:
    """All of one prompt with the same salt, that of the golden outputs where they have one: answers to one question."""
    salts, known = fresh_salts(seed=seed), salts_of(golden)
    asks: list[Json] = []
    for prompt, pods in zip(prompts, asked, strict=True):
        salt = known.get(prompt.id) or next(salts)
        for pod in pods:
            asks.append(
                {
                    "number": len(asks),
                    "revision": revision,
                    "prompt": prompt.id,
                    "salt": salt,
                    "tokens": PARITY_TOKENS,
                    "pod": pod,
                }
            )
    return asks


def _send(
    asks: Sequence[Json], prompts: Mapping[str, Prompt], settings: PoolSettings, pool: PoolView
) -> list[Json]:
    """Send a piece: answers in the order of the asks, as far as they were sent."""
    strict = pool.router.settings.strict_header
    gateway = Line(settings.probe_url, headers=read_credential(settings.credential, url=settings.probe_url))
    engines, sidecars = (
        direct_addresses(pool.pods, settings, pool),
        direct_addresses(pool.pods, replace(settings, decode_port=0), pool),
    )
    asked = {(ask.get("pod", ""), "prefill" in ask) for ask in asks}
    lines = {
        (name, paired): Line((sidecars if paired else engines)[name])
        for name, paired in asked
        if name in engines
    }

    nonce = secrets.token_hex(4)

    def send(ask: Json) -> Json:
        body = body_of(ask, prompts, settings, nonce=nonce)
        if not ask.get("pod"):
            reply = gateway.complete(body, headers=headers_of(ask, settings, strict))
        elif line := lines.get((ask["pod"], "prefill" in ask)):
            prefill = sidecars.get(ask.get("prefill", ""), "").removeprefix("http://")
            reply = line.complete(body, headers={PREFILLER: prefill} if prefill else {})
        else:
            reply = Reply(None, detail="the reference pod is gone")
        return kept_of(ask, reply, pool)

    try:
        return _paced(send, asks, rate=settings.rate)
    finally:
        for line in (gateway, *lines.values()):
            line.close()


def _paced(send: Callable[[Json], Json], asks: Sequence[Json], *, rate: float) -> list[Json]:
    """Send at most `rate` a second and AT_ONCE at a time, for PIECE_S. A path that answers slowly or not at all takes
    more pieces, never a worker's life. Whoever sends after this keeps the distance, too."""
    due = begun = time.monotonic()
    sent: list[Future[Json]] = []
    with ThreadPoolExecutor(AT_ONCE) as workers:
        for ask in asks:
            time.sleep(max(0.0, due - time.monotonic()))
            _wait_for_room(sent, until=begun + PIECE_S)
            if time.monotonic() >= begun + PIECE_S and sent:
                break
            sent.append(workers.submit(send, ask))
            due = time.monotonic() + 1 / rate  # time that a slow answer has cost is not made up for
    answers = [each.result() for each in sent]
    time.sleep(max(0.0, due - time.monotonic()))
    return answers


def _wait_for_room(sent: Sequence[Future[Json]], *, until: float) -> None:
    """Return when fewer than AT_ONCE are on their way, or when the time is up."""
    while (open_ones := [each for each in sent if not each.done()]) and len(open_ones) >= AT_ONCE:
        left = until - time.monotonic()
        if left <= 0:
            return
        wait(open_ones, timeout=left, return_when=FIRST_COMPLETED)


def direct_addresses(pods: Sequence[EnginePod], settings: PoolSettings, pool: PoolView) -> dict[str, str]:
    """Where engines are asked directly; who is not reached does not answer."""
    default = pool.ports[0] if pool.ports else 8000
    return {
        name: address
        for pod in pods
        for name, address in engine_addresses(
            [(pod.name, pod.ip)], (settings.decode_port if pod.role != "prefill" else 0) or default
        ).items()
    }
