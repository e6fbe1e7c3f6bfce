"""One simulated engine: admission, prefill or reading of KV, decoding, and its metrics."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from deploy.demo.engines import geometry
from deploy.demo.engines.clock import Clock
from deploy.demo.engines.faults import BadFault, FaultList, Options, environment_faults
from deploy.demo.engines.jobs import EngineProblem, Job, Reason, TransferFailed, Work
from deploy.demo.engines.kv import Blocks, PrefixCache
from deploy.demo.engines.metrics import Metrics
from deploy.demo.engines.pods import EnginePod
from deploy.demo.engines.reader import Reader
from deploy.demo.engines.spec import engine_spec
from deploy.demo.engines.tokens import Corruption, Model, noise_sd

_PUMP_S = 0.02  # real seconds between looks at a queue that may wait for a lease to end
_LOG_LINES = 200


class Engine:
    """The engine of one incarnation of a pod. ``peers`` finds the engine that answers on an address now."""

    def __init__(
        self,
        pod: EnginePod,
        *,
        clock: Clock,
        faults: FaultList,
        peers: Callable[[str], Engine | None],
        seed: int = 0,
        jitter: float = 0.0,
        start: int = 0,
    ) -> None:
        self.pod = pod
        self.spec = engine_spec(pod)
        self.clock = clock
        self.alive = True
        self.served = 0
        self.log: deque[str] = deque(maxlen=_LOG_LINES)
        digest = blake2b(f"{seed}/{pod.key}/{pod.incarnation}/{start}".encode(), digest_size=16).hexdigest()
        self.engine_id = "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:]))
        self.metrics = Metrics(self.spec, created=time.time())
        self.metrics.refresh = self._set_gauges
        self.blocks = Blocks(self.spec.blocks, clock.now, self._lease_expired)
        self.reader = Reader(self, peers)
        self._cache = PrefixCache(self.spec.blocks)
        self._seed = f"{seed}/{pod.key}/{start}"
        self._random = random.Random(self._seed)
        self._noise_sd = noise_sd(jitter)
        self._live = faults
        self._own = self._environment_faults()
        self._faults: tuple[int, dict[str, Options]] = (-1, {})
        self._running = 0
        self._admitted = 0
        self._queue: deque[tuple[asyncio.Future[None], Work]] = deque()
        self._pumping = False

    # --- faults

    def _environment_faults(self) -> dict[str, Options]:
        try:
            return environment_faults(self.pod)
        except BadFault as problem:
            self.log.append(str(problem))
            return {}

    def fault(self, kind: str) -> Options | None:
        """Options of a fault that holds for this engine now: live ones before those of its environment."""
        if self._faults[0] != self._live.version:
            self._faults = (self._live.version, {**self._own, **self._live.of_engine(self.pod)})
        return self._faults[1].get(kind)

    def pair_fault(self, kind: str, prefill: Engine) -> Options | None:
        """Options of a fault that holds between a prefill engine and this one."""
        live = self._live.of_pair(kind, prefill.pod, self.pod)
        return live if live is not None else self._own.get(kind, prefill._own.get(kind))

    def pace(self, number: int | None = None) -> float:
        """By how much this engine is slower than its hardware at job ``number`` (the latest one)."""
        number = self.served if number is None else number
        slow, cold = self.fault("slow"), self.fault("cold_start")
        factor = float(slow["factor"]) if slow else 1.0
        return factor * float(cold["factor"]) if cold and number <= cold["requests"] else factor

    def happens(self, share: float) -> bool:
        """A coin that falls on heads in a share of cases."""
        return share >= 1 or self._random.random() < share

    def any_seed(self) -> int:
        """For requests that sample without a seed of their own."""
        return self._random.getrandbits(32)

    # --- the life of a request

    async def begin(self, job: Job) -> Work:
        """Take a job to its first token: the answer is then known, its time is the caller's to spend.

        EngineProblem when it fails before that. Everything begun must be ended by :meth:`end`.
        """
        self.served += 1
        model = Model(self.spec.weights, job.prompt.key)
        room = max(1, self.spec.max_length - job.prompt.tokens)
        natural = room if job.ignore_end else model.natural_length()
        count = min(natural, room, room if job.most is None else job.most)
        need = -(-(job.prompt.tokens + count) // self.spec.block_size)
        work = Work(job, self.clock.now(), min(need, self.blocks.size), self.served)
        work.reason = "stop" if count == natural and not job.ignore_end else "length"
        await self._admit(work)
        try:
            corruption = await self._fill(work)
            self._running += 1
            work.running = True
            self._decode(work, model, count, corruption)
            await self.clock.sleep(work.prefill_s)
        except TransferFailed as problem:
            self.end(work, "error")
            text = f"Request {job.request_id} failed due to KV load failure: {problem}"
            self.log.append(text)
            raise EngineProblem(500, "request failed due to KV load failure", "InternalServerError") from None
        except BaseException:
            self.end(work, "abort")
            raise
        return work

    async def _admit(self, work: Work) -> None:
        if not self._queue and self._has_room(work):
            self._take(work)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((turn, work))
        self._pump_later()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._queue = deque(each for each in self._queue if each[0] is not turn)
            else:
                self._free(work)
            self.metrics.count("vllm:request_success", label="abort")
            raise
        work.queue_s = self.clock.now() - work.arrived

    def _has_room(self, work: Work) -> bool:
        return self._admitted < self.spec.max_seqs and self.blocks.fits(work.blocks)

    def _take(self, work: Work) -> None:
        self._admitted += 1
        work.start = self.blocks.take(work.blocks)

    def _free(self, work: Work, *, kept: int = 0) -> None:
        self._admitted -= 1
        self.blocks.give_back(work.blocks - kept)
        self._pump()

    def _pump(self) -> None:
        while self._queue and self._has_room(self._queue[0][1]):
            turn, work = self._queue.popleft()
            if not turn.done():
                self._take(work)
                turn.set_result(None)

    def _pump_later(self) -> None:
        if not self._pumping:
            self._pumping = True
            asyncio.get_running_loop().call_later(_PUMP_S, self._pump_again)

    def _pump_again(self) -> None:
        self._pumping = False
        self._pump()
        if self._queue and self.alive:
            self._pump_later()

    async def _fill(self, work: Work) -> Corruption | None:
        """Get the prompt's KV: from the prefix cache, from another engine, or by computing it."""
        job, size = work.job, self.spec.block_size
        tokens = job.prompt.tokens
        known = job.prompt.blocks(size) if self.spec.prefix_caching else []
        # At least the last token is always computed.
        work.hit = min(self._cache.hits(known) * size, (tokens - 1) // size * size)
        spoiled = None
        work.computed = tokens - work.hit
        if job.remote is not None:
            spoiled = await self._fetch(work)
        self._cache.add(known)
        pace = self.pace(work.number)
        if work.computed:
            work.prefill_s = pace * geometry.prefill_time(self.spec.shape, work.computed, self.spec.tp)
        else:
            work.prefill_s = pace * geometry.step_time(self.spec.shape, self.spec.tp, self._running)
        self._count_prompt(work)
        bad = self.fault("corrupt")
        return Corruption(bad["fraction"], f"engine/{self.pod.revision}", bad["quiet"]) if bad else spoiled

    async def _fetch(self, work: Work) -> Corruption | None:
        started = self.clock.now()
        try:
            assert work.job.remote is not None
            fetched = await self.reader.fetch(work.job.remote, work.computed)
        except TransferFailed as problem:
            self.log.append(str(problem))
            work.fetch_s = self.clock.now() - started
            if not self.spec.recompute:
                work.computed = 0
                raise
            return None
        work.fetch_s = fetched.seconds
        work.fetched, work.computed = work.computed, 0
        return fetched.corruption

    def _decode(self, work: Work, model: Model, count: int, corruption: Corruption | None) -> None:
        noise = random.Random(f"{self._seed}/{work.number}") if self._noise_sd else None
        sampling = work.job.sampling
        work.tokens = model.answer(
            count, sampling=sampling, noise=noise, sd=self._noise_sd, corruption=corruption
        )
        if work.job.stops:
            self._cut(work)
        step = geometry.step_time(self.spec.shape, self.spec.tp, self._running)
        work.gap_s = self.pace(work.number) * step * self._random.uniform(0.95, 1.05)

    def _cut(self, work: Work) -> None:
        text = ""
        for index, token in enumerate(work.tokens):
            text += token.text
            if any(stop in text for stop in work.job.stops):
                del work.tokens[index:]
                work.reason = "stop"
                return

    def end(self, work: Work, reason: Reason, *, emitted: int | None = None) -> dict[str, Any] | None:
        """Leave the engine, once; ``emitted`` tokens were given out (all, if None).

        Returns the kv_transfer_params for a reader when the job asked to keep its KV and could.
        """
        if work.over:
            return None
        work.over = True
        self._running -= work.running
        self.metrics.count("vllm:request_success", label=reason)
        count = len(work.tokens) if emitted is None else emitted
        kept = 0
        answer = None
        if reason in ("stop", "length"):
            self._observe(work, count)
            if work.job.keep and self.spec.connector and self.spec.kv_role != "kv_consumer":
                kept = min(work.blocks, -(-work.job.prompt.tokens // self.spec.block_size))
                answer = self._lease(work, kept)
        self._free(work, kept=kept)
        return answer

    def _lease(self, work: Work, count: int) -> dict[str, Any]:
        spec, job = self.spec, work.job
        short = self.fault("short_lease")
        seconds = float(short["seconds"]) if short else spec.lease_s
        lost = bool(short and short["overwritten"])
        lease_id = f"{job.request_id}-{work.number}"  # clients may send an id twice
        self.blocks.lease(lease_id, work.start, count, seconds, overwritten=lost)
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": self.blocks.ids(work.start, count),
            "remote_engine_id": self.engine_id,
            "remote_request_id": lease_id,
            "remote_host": self.pod.env.get("VLLM_NIXL_SIDE_CHANNEL_HOST") or "localhost",
            "remote_port": int(self.pod.env.get("VLLM_NIXL_SIDE_CHANNEL_PORT") or 5600),
            "remote_num_tokens": job.prompt.tokens,
            "tp_size": spec.tp,
            "kv_lease_duration": seconds,
        }

    # --- metrics

    def _lease_expired(self) -> None:
        self.metrics.count("vllm:nixl_num_kv_expired_reqs")
        self.log.append("Releasing expired KV blocks: a reader did not come in time")

    def _count_prompt(self, work: Work) -> None:
        count, tokens = self.metrics.count, work.job.prompt.tokens
        if self.spec.prefix_caching:
            count("vllm:prefix_cache_queries", tokens)
            count("vllm:prefix_cache_hits", work.hit)
        if work.job.remote is not None:
            count("vllm:external_prefix_cache_queries", tokens - work.hit)
            count("vllm:external_prefix_cache_hits", work.fetched)
        # Up to 0.20 a fully transferred prompt still counted one computed token.
        extra = 1 if work.fetched and self.spec.release < (0, 21) else 0
        count("vllm:prompt_tokens", tokens)
        count("vllm:prompt_tokens_by_source", work.computed + extra, "local_compute")
        count("vllm:prompt_tokens_by_source", work.hit, "local_cache_hit")
        count("vllm:prompt_tokens_by_source", work.fetched - extra, "external_kv_transfer")
        count("vllm:prompt_tokens_cached", tokens - work.computed - extra)
        count("vllm:prompt_tokens_cached_by_source", work.hit, "device")
        count("vllm:prompt_tokens_cached_by_source", work.fetched - extra, "p2p")

    def _observe(self, work: Work, count: int) -> None:
        observe, tokens = self.metrics.observe, work.job.prompt.tokens
        queue = work.queue_s + work.fetch_s  # scheduled = starts to run: reading KV is queueing
        gaps = max(0, count - 1)
        decode = gaps * work.gap_s
        self.metrics.count("vllm:generation_tokens", count)
        observe("vllm:request_prompt_tokens", tokens)
        observe("vllm:request_generation_tokens", count)
        observe("vllm:request_max_num_generation_tokens", count)
        observe("vllm:request_params_n", 1)
        if work.job.most is not None:
            observe("vllm:request_params_max_tokens", work.job.most)
        observe("vllm:request_prefill_kv_computed_tokens", work.computed)
        observe("vllm:request_num_preemptions", 0)
        observe("vllm:iteration_tokens_total", max(1, work.computed))
        observe("vllm:iteration_tokens_total", max(1, self._running), gaps)
        observe("vllm:time_to_first_token_seconds", queue + work.prefill_s)
        observe("vllm:inter_token_latency_seconds", work.gap_s, gaps)
        observe("vllm:request_time_per_output_token_seconds", work.gap_s if gaps else 0.0)
        observe("vllm:e2e_request_latency_seconds", queue + work.prefill_s + decode)
        observe("vllm:request_queue_time_seconds", queue)
        observe("vllm:request_prefill_time_seconds", work.prefill_s)
        observe("vllm:request_decode_time_seconds", decode)
        observe("vllm:request_inference_time_seconds", work.prefill_s + decode)

    def _set_gauges(self) -> None:
        put, reader = self.metrics.set, self.reader
        self.blocks.sweep()
        put("vllm:num_requests_running", self._running)
        put("vllm:num_requests_waiting", len(self._queue) + reader.deferred)
        put("vllm:num_requests_waiting_by_reason", len(self._queue), "capacity")
        put("vllm:num_requests_waiting_by_reason", reader.deferred, "deferred")
        for stage, number in reader.stages.items():
            put("vllm:num_requests_kv_fetch_by_stage", number, stage)
        put("vllm:kv_cache_usage_perc", min(1.0, self.blocks.used / self.blocks.size))
        put("vllm:engine_sleep_state", 1, "awake")
