"""KV cache blocks of one engine: allocation, the prefix cache, and leases for a decode side that is to read them."""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Units = str | Sequence[int]
CHARACTERS_PER_TOKEN = 4
_EXPIRED_KEPT = 2048


@dataclass(frozen=True)
class Prompt:
    """A prompt: text (four characters a token, the usual rule of thumb) or token ids.

    ``salt`` keeps its blocks apart from those of the same prompt under another one (vLLM's cache_salt); the model does
    not see it.
    """

    units: Units
    salt: str = ""

    @property
    def tokens(self) -> int:
        """Length in tokens; at least 1."""
        if isinstance(self.units, str):
            return max(1, -(-len(self.units) // CHARACTERS_PER_TOKEN))
        return max(1, len(self.units))

    @property
    def key(self) -> bytes:
        """What the model sees."""
        if isinstance(self.units, str):
            return self.units.encode()
        return b"ids:" + ",".join(map(str, self.units)).encode()

    def blocks(self, size: int) -> list[int]:
        """Hashes of the full blocks of ``size`` tokens, each with all that is before it."""
        step = size * CHARACTERS_PER_TOKEN if isinstance(self.units, str) else size
        chain, found = hash(self.salt) if self.salt else 0, []
        for start in range(0, len(self.units) - step + 1, step):
            part = self.units[start : start + step]
            chain = hash((chain, part if isinstance(part, str) else tuple(part)))
            found.append(chain)
        return found


class PrefixCache:
    """Which full blocks are known, least recently used out first."""

    def __init__(self, capacity: int) -> None:
        self._known: OrderedDict[int, None] = OrderedDict()
        self._capacity = capacity

    def hits(self, blocks: Sequence[int]) -> int:
        """How many blocks from the start are known."""
        count = 0
        for block in blocks:
            if block not in self._known:
                break
            self._known.move_to_end(block)
            count += 1
        return count

    def add(self, blocks: Sequence[int]) -> None:
        """Remember blocks."""
        for block in blocks:
            self._known[block] = None
            self._known.move_to_end(block)
        while len(self._known) > self._capacity:
            self._known.popitem(last=False)


@dataclass
class Lease:
    """KV of one finished prefill, kept for a reader until ``expires`` (model seconds) or until it was read."""

    request_id: str
    start: int  # position in the engine's sequence of block allocations
    count: int
    expires: float
    held: int = 0  # readers that send heartbeats
    state: str = "kept"  # kept, read, expired
    overwritten: bool = False  # by a fault, as soon as it expires


class Blocks:
    """``size`` blocks, handed out round and round, so that freed memory is overwritten in the order it was freed."""

    def __init__(self, size: int, clock: Callable[[], float], expired: Callable[[], None]) -> None:
        self.size = size
        self.used = 0
        self.leases: dict[str, Lease] = {}
        self._next = 0
        self._clock = clock
        self._expired = expired
        self._due: list[tuple[float, int, Lease]] = []
        self._order = itertools.count()
        self._expired_leases: OrderedDict[str, Lease] = OrderedDict()

    def fits(self, count: int) -> bool:
        """Whether ``count`` blocks are free; lets due leases go first."""
        self.sweep()
        return self.used + count <= self.size

    def take(self, count: int) -> int:
        """Allocate; returns where in the sequence of allocations."""
        start = self._next
        self._next += count
        self.used += count
        return start

    def give_back(self, count: int) -> None:
        """Free."""
        self.used -= count

    def ids(self, start: int, count: int) -> list[int]:
        """Block numbers of an allocation."""
        return [position % self.size for position in range(start, start + count)]

    def lease(
        self, request_id: str, start: int, count: int, seconds: float, *, overwritten: bool = False
    ) -> Lease:
        """Keep allocated blocks for a reader."""
        lease = Lease(request_id, start, count, self._clock() + seconds, overwritten=overwritten)
        self.leases[request_id] = lease
        self._remind(lease)
        return lease

    def find(self, request_id: str) -> Lease | None:
        """A lease that is kept, or one that ran out not long ago: its reader still knows the addresses."""
        self.sweep()
        return self.leases.get(request_id) or self._expired_leases.get(request_id)

    def read(self, lease: Lease) -> None:
        """The reader said it is done."""
        if lease.state == "kept":
            lease.state = "read"
            self._drop(lease)

    def let_go(self, lease: Lease, seconds: float) -> None:
        """A reader stopped its heartbeats: the lease ends ``seconds`` from now, unless it would end later anyway."""
        lease.held = max(0, lease.held - 1)
        if not lease.held:
            lease.expires = max(lease.expires, self._clock() + seconds)
            self._remind(lease)

    def is_lost(self, lease: Lease) -> bool:
        """Whether memory of an expired lease has been written by somebody else."""
        reused = self._next - lease.start > self.size
        return lease.state == "expired" and (lease.overwritten or reused)

    def sweep(self) -> None:
        """Free the blocks of leases that ran out; those with a reader wait for it."""
        now = self._clock()
        while self._due and self._due[0][0] <= now:
            _, _, lease = heapq.heappop(self._due)
            if lease.state == "kept" and not lease.held and lease.expires <= now:
                lease.state = "expired"
                self._drop(lease)
                self._expired_leases[lease.request_id] = lease
                if len(self._expired_leases) > _EXPIRED_KEPT:
                    self._expired_leases.popitem(last=False)
                self._expired()

    def _remind(self, lease: Lease) -> None:
        heapq.heappush(self._due, (lease.expires, next(self._order), lease))

    def _drop(self, lease: Lease) -> None:
        self.used -= lease.count
        if self.leases.get(lease.request_id) is lease:
            del self.leases[lease.request_id]
