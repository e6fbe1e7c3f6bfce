"""What can be left over when items are packed into bins by somebody who never leaves an item that still fits.

The scheduler places pod by pod, in an order and with scores that nobody outside can foresee, and moves
nothing afterwards. Whatever it does ends in a packing where no waiting item fits any bin. The functions here
bound what is left over all such packings, so what they prove holds for every order. An item takes a fixed
amount of each resource; items with equal amounts and equal bins are one kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd

Amounts = tuple[tuple[str, int], ...]
Counts = tuple[int, ...]

# Steps of the exact search and vectors of one bin; beyond them the answer is "not known".
STEPS = 300_000
VECTORS = 2_000
KINDS = 4


@dataclass(frozen=True, slots=True)
class Kind:
    """`count` equal items for the bins whose bits are set in `bins`; `ahead` of them are not ours.

    Those are packed before ours, so where one of a kind is left and some are ours, ours is left.
    """

    amounts: Amounts
    bins: int
    count: int
    ahead: int = 0


@dataclass(frozen=True, slots=True)
class Leftover:
    """Over all orders: `never` or `always` is one of our items left, and how many items at least and at most.

    `fewest` is a lower bound; `most` is None where no upper bound below "all" was proved.
    """

    never: bool
    always: bool
    fewest: int
    most: int | None

    @property
    def exact(self) -> int | None:
        """The number left where it is the same for every order."""
        return self.fewest if self.fewest == self.most else None


def leftover(kinds: Sequence[Kind], free: Sequence[Mapping[str, int]]) -> Leftover:
    """Bounds on what is left of `kinds` in bins with these free amounts; less than 0 or a missing one is 0.

    Exact for one kind, for kinds that cannot crowd each other out, and for small problems by search over all
    maximal packings. Otherwise only what the sums of slots and amounts prove.
    """
    names = {name for kind in kinds for name, _ in kind.amounts}
    free = [{name: max(0, amounts.get(name, 0)) for name in names} for amounts in free]
    room = [slots_in(kind, free, kind.bins) for kind in kinds]
    short = [max(0, kind.count - have) for kind, have in zip(kinds, room, strict=True)]
    if len(kinds) == 1 or not _crowding(kinds):
        return _sure(kinds, short)
    spare = [have - loss_to_others(kind, kinds) for kind, have in zip(kinds, room, strict=True)]
    if all(have >= kind.count for kind, have in zip(kinds, spare, strict=True)):
        return _sure(kinds, [0] * len(kinds))
    found = _search(kinds, free)
    if found is not None:
        return found
    always = any(left and kind.count > kind.ahead for left, kind in zip(short, kinds, strict=True))
    if not always and all(kind.count > kind.ahead for kind in kinds):
        always = _sum_exceeds(kinds, free)
    return Leftover(never=False, always=always, fewest=max(sum(short), int(always)), most=None)


def _sure(kinds: Sequence[Kind], left: Sequence[int]) -> Leftover:
    ours = any(n for n, kind in zip(left, kinds, strict=True) if kind.count > kind.ahead)
    return Leftover(never=not ours, always=ours, fewest=sum(left), most=sum(left))


def _slots(amounts: Amounts, free: Mapping[str, int]) -> int:
    """Items that one bin takes when nothing else goes in."""
    return min((free.get(name, 0) // need for name, need in amounts if need), default=10**9)


def _crowding(kinds: Sequence[Kind]) -> bool:
    return any(a.bins & b.bins for i, a in enumerate(kinds) for b in kinds[:i])


def loss_to_others(kind: Kind, kinds: Sequence[Kind]) -> int:
    """The most slots of `kind` that all other items together can take, wherever they go."""
    need = dict(kind.amounts)
    taken = 0
    for other in kinds:
        if other is not kind and other.bins & kind.bins:
            loss = max((-(-have // need[name]) for name, have in other.amounts if need.get(name)), default=0)
            taken += other.count * loss
    return taken


def slots_in(kind: Kind, free: Sequence[Mapping[str, int]], mask: int) -> int:
    """Items of a kind that fit into the bins of a mask when nothing else goes in."""
    return sum(max(0, _slots(kind.amounts, free[b])) for b in _bits(kind.bins & mask))


def _sum_exceeds(kinds: Sequence[Kind], free: Sequence[Mapping[str, int]]) -> bool:
    """Whether some resource is too small in sum, counting of each bin only what whole items can use."""
    everywhere = 0
    for kind in kinds:
        everywhere |= kind.bins
    for name in {name for kind in kinds for name, need in kind.amounts if need}:
        step = 0
        for kind in kinds:
            step = gcd(step, dict(kind.amounts).get(name, 0))
        usable = sum(free[b].get(name, 0) // step * step for b in _bits(everywhere))
        if sum(kind.count * dict(kind.amounts).get(name, 0) for kind in kinds) > usable:
            return True
    return False


def _search(kinds: Sequence[Kind], free: Sequence[Mapping[str, int]]) -> Leftover | None:
    """All possible leftovers by dynamic programming over bins, or None where that takes too long.

    For each set of kinds assumed to be left, every bin must be so full that none of them fits. A state is how
    many of each kind the bins so far hold.
    """
    if len(kinds) > KINDS:
        return None
    everywhere = 0
    for kind in kinds:
        everywhere |= kind.bins
    bins = []
    for b in _bits(everywhere):
        vectors = _fillings(kinds, b, free[b])
        if vectors is None:
            return None
        bins.append(vectors)
    budget = STEPS
    ends: set[Counts] = set()
    for left in range(2 ** len(kinds)):
        reached, budget = _reach(kinds, bins, left, budget)
        if reached is None:
            return None
        ends |= reached
    return _summary(kinds, ends)


def _reach(
    kinds: Sequence[Kind], bins: Sequence[Sequence[tuple[Counts, int]]], left: int, budget: int
) -> tuple[set[Counts] | None, int]:
    """Placed counts of all maximal packings in which at most the kinds in `left` have items over."""
    states: set[Counts] = {(0,) * len(kinds)}
    for fillings in bins:
        full = [vector for vector, fits in fillings if not fits & left]
        budget -= len(states) * len(full)
        if budget < 0:
            return None, budget
        sums = (
            tuple(a + b for a, b in zip(state, vector, strict=True)) for state in states for vector in full
        )
        states = {
            total for total in sums if all(n <= kind.count for n, kind in zip(total, kinds, strict=True))
        }
    done = {
        state for state in states if all(left >> k & 1 or n == kinds[k].count for k, n in enumerate(state))
    }
    return done, budget


def _fillings(kinds: Sequence[Kind], b: int, free: Mapping[str, int]) -> list[tuple[Counts, int]] | None:
    """Every way to fill one bin, each with the set of kinds of which one more item would still fit."""
    here = [bool(kind.bins >> b & 1) for kind in kinds]
    most = [
        min(kind.count, _slots(kind.amounts, free)) if allowed else 0
        for kind, allowed in zip(kinds, here, strict=True)
    ]
    ways = 1
    for n in most:
        ways *= n + 1
    if ways > VECTORS * 10:
        return None
    fillings: list[tuple[Counts, int]] = []
    for vector in product(*(range(n + 1) for n in most)):
        rest = dict(free)
        for n, kind in zip(vector, kinds, strict=True):
            for name, need in kind.amounts:
                rest[name] = rest.get(name, 0) - n * need
        if min(rest.values(), default=0) >= 0:
            fits = sum(1 << k for k, kind in enumerate(kinds) if here[k] and _slots(kind.amounts, rest) > 0)
            fillings.append((vector, fits))
    return fillings if len(fillings) <= VECTORS else None


def _summary(kinds: Sequence[Kind], ends: set[Counts]) -> Leftover:
    lefts = [tuple(kind.count - n for kind, n in zip(kinds, end, strict=True)) for end in ends]
    each = [_sure(kinds, left) for left in lefts]
    return Leftover(
        never=all(one.never for one in each),
        always=all(one.always for one in each),
        fewest=min(one.fewest for one in each),
        most=max(one.fewest for one in each),
    )


def _bits(mask: int) -> list[int]:
    """Positions of the set bits, lowest first."""
    return [b for b in range(mask.bit_length()) if mask >> b & 1]
