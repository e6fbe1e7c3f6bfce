"""The decode side of a KV transfer: handshakes with prefill engines, reading their blocks, and what can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deploy.demo.engines import compat, geometry
from deploy.demo.engines.families import STAGES
from deploy.demo.engines.jobs import TransferFailed
from deploy.demo.engines.kv import Lease
from deploy.demo.engines.tokens import Corruption

if TYPE_CHECKING:
    from deploy.demo.engines.engine import Engine

_NO_ANSWER_S = 5.0  # receive timeout of a handshake
_LOST = 0.9  # share of wrong tokens when somebody else's KV was read
_EXTENDS = 2 / 3  # of the lease's duration, by each heartbeat


@dataclass(frozen=True)
class Fetched:
    """A finished read: model seconds it took, and what it spoiled."""

    seconds: float
    corruption: Corruption | None


@dataclass(frozen=True)
class _Size:
    """How one request's KV is read: ``handles`` transfers of ``each`` bytes in ``pieces`` descriptors."""

    handles: int
    each: float
    pieces: int


class Reader:
    """Reads KV for one engine. ``deferred`` requests wait for it; ``stages`` says where they are."""

    def __init__(self, engine: Engine, peers: Callable[[str], Engine | None]) -> None:
        self.deferred = 0
        self.stages = dict.fromkeys(STAGES, 0)
        self._engine = engine
        self._peers = peers
        self._agents: dict[str, float] = {}  # engine id -> when its handshake succeeded
        self._shaking: dict[str, asyncio.Task[str]] = {}
        self._first_seen: dict[str, str] = {}  # address -> the engine id first met there
        self._stale: set[str] = set()
        self._reading = 0

    async def fetch(self, params: Mapping[str, Any], tokens: int) -> Fetched:
        """Read the KV of ``tokens`` prompt tokens. TransferFailed, after counting it as this release counts."""
        self.deferred += 1
        try:
            return await self._fetch(params, tokens)
        finally:
            self.deferred -= 1

    async def _fetch(self, params: Mapping[str, Any], tokens: int) -> Fetched:
        started = self._engine.clock.now()
        self.stages["waiting_to_start"] += 1
        try:
            shaken = await self._agree(params)
        finally:
            self.stages["waiting_to_start"] -= 1
        peer = self._peer(params)
        if peer is None:
            raise self._failed("transfer_failed", "NIXL_ERR_REMOTE_DISCONNECT", self._engine.spec.tp)
        lease = peer.blocks.find(str(params.get("remote_request_id", "")))
        if lease is None:
            raise self._failed("transfer_setup_failed", "NIXL_ERR_NOT_FOUND", self._engine.spec.tp)
        self.stages["in_progress"] += 1
        self._reading += 1
        try:
            seconds = await self._read(peer, lease, tokens)
        finally:
            self._reading -= 1
            self.stages["in_progress"] -= 1
        # A handshake is timed, a read is computed: timers of short reads would say more about this machine.
        waited = self._engine.clock.now() - started - seconds if shaken else 0.0
        return Fetched(max(0.0, waited) + seconds, self._spoiled(peer, lease))

    def _peer(self, params: Mapping[str, Any]) -> Engine | None:
        """The engine that the parameters name, if it is still there."""
        found = self._peers(str(params.get("remote_host", "")))
        return found if found is not None and found.engine_id == params.get("remote_engine_id") else None

    # --- handshakes

    async def _agree(self, params: Mapping[str, Any]) -> bool:
        """Make sure that the peer's metadata is known; returns whether that took a handshake."""
        engine, spec = self._engine, self._engine.spec
        host, peer_id = str(params.get("remote_host", "")), str(params.get("remote_engine_id", ""))
        if self._is_stale(host, peer_id):
            raise self._failed("handshake_failed", "Remote NIXL agent engine ID mismatch", spec.tp)
        known = self._agents.get(peer_id)
        # From 0.33 an agent is kept until its peer is replaced, which gives it another id.
        if known is not None and (spec.release >= (0, 33) or engine.clock.now() - known < spec.engine_ttl_s):
            return False
        task = self._shaking.get(peer_id)
        first = task is None
        if task is None:
            task = self._shaking[peer_id] = asyncio.ensure_future(self._shake(host, peer_id))
            task.add_done_callback(lambda _: self._shaking.pop(peer_id, None))
        refused = await asyncio.shield(task)
        if not refused:
            return True
        if spec.release < (0, 23):
            failures = 0
        elif spec.release < (0, 33):
            failures = spec.tp
        else:
            failures = int(first)
        raise self._failed("handshake_failed", refused, failures)

    async def _shake(self, host: str, peer_id: str) -> str:
        """One handshake; "" or why it failed. A success is remembered, a failure is not."""
        engine = self._engine
        if self._peers(host) is None:
            await engine.clock.sleep(_NO_ANSWER_S)
        else:
            await engine.clock.sleep(engine.spec.handshake_s * engine.pace())
        peer = self._peers(host)
        if peer is None:
            return f"no answer from the side channel of {host}"
        if peer.engine_id != peer_id:
            return "Remote NIXL agent engine ID mismatch"
        if not engine.spec.connector or engine.spec.kv_role == "kv_producer":
            return "this engine has no connector that reads"
        forced = engine.pair_fault("incompatible_pair", peer)
        refused = str(forced["reason"]) if forced else compat.refusal(engine.spec, peer.spec)
        if not refused:
            self._agents[peer_id] = engine.clock.now()
            self._first_seen.setdefault(host, peer_id)
        return refused

    def _is_stale(self, host: str, peer_id: str) -> bool:
        """With the fault: whether this engine still believes in the first engine that it met at an address.

        Once so, it stays so until this engine restarts, even if the fault is taken away.
        """
        if self._engine.fault("stale_agent") is not None and self._first_seen.get(host, peer_id) != peer_id:
            self._stale.add(host)
        elif host not in self._stale and peer_id in self._agents:
            self._first_seen[host] = peer_id
        return host in self._stale

    # --- reading

    async def _read(self, peer: Engine, lease: Lease, tokens: int) -> float:
        engine = self._engine
        short = peer.fault("short_lease") is not None
        beats = engine.spec.heartbeats and peer.spec.heartbeats and lease.state == "kept" and not short
        lease.held += beats
        size = self._size(peer, tokens)
        shared = size.each * self._reading
        post, transfer = geometry.transfer_times(shared, size.pieces, self._slower_link(peer))
        pace = max(engine.pace(), peer.pace())
        done = False
        try:
            await engine.clock.sleep(transfer * pace)
            done = peer.alive
        finally:
            if beats and not done:
                peer.blocks.let_go(lease, peer.spec.lease_s * _EXTENDS)
        if not done:
            raise self._failed("transfer_failed", "NIXL_ERR_REMOTE_DISCONNECT", size.handles)
        peer.blocks.sweep()
        peer.blocks.read(lease)
        if lease.state == "expired":
            peer.metrics.count("vllm:nixl_num_notifications_after_expiry", size.handles)
            peer.log.append("Potentially invalid KV blocks: read after their lease had ended")
        observe = engine.metrics.observe
        observe("vllm:nixl_xfer_time_seconds", transfer * pace, size.handles)
        observe("vllm:nixl_post_time_seconds", post * pace, size.handles)
        observe("vllm:nixl_bytes_transferred", size.each, size.handles)
        observe("vllm:nixl_num_descriptors", size.pieces, size.handles)
        return transfer * pace

    def _slower_link(self, peer: Engine) -> str:
        return min(self._engine.spec.link, peer.spec.link, key=geometry.LINKS.__getitem__)

    def _size(self, peer: Engine, tokens: int) -> _Size:
        spec, block = self._engine.spec, self._engine.spec.block_size
        moved = -(-tokens // block) * block
        whole = geometry.kv_bytes(spec.shape, moved, spec.element, block=block, hybrid=spec.hybrid)
        handles = spec.tp if spec.shape.mla else max(spec.tp, peer.spec.tp)
        pieces = geometry.descriptors(spec.shape, moved, min(block, peer.spec.block_size))
        return _Size(handles, geometry.rank_bytes(spec.shape, whole, handles), pieces)

    def _spoiled(self, peer: Engine, lease: Lease) -> Corruption | None:
        """What is wrong with KV that was read without an error."""
        engine = self._engine
        if peer.blocks.is_lost(lease):
            return Corruption(_LOST, f"lost/{lease.request_id}")
        faulty = peer.fault("corrupt")
        if faulty:  # a prefill engine that computes wrongly spoils every decode engine's answers
            return Corruption(float(faulty["fraction"]), f"engine/{peer.pod.revision}", bool(faulty["quiet"]))
        pair = f"{peer.pod.revision}/{engine.pod.revision}"
        bad = engine.pair_fault("corrupt_pair", peer)
        if bad:
            return Corruption(float(bad["fraction"]), pair, bool(bad["quiet"]))
        share = compat.spoiled_share(engine.spec, peer.spec)
        return Corruption(share, f"{peer.spec.weights}/{engine.spec.weights}") if share else None

    def _failed(self, kind: str, why: str, failures: int) -> TransferFailed:
        self._engine.metrics.count("vllm:nixl_num_failed_transfers", failures)
        return TransferFailed(f"NIXL transfer failure: {kind}: {why}")
