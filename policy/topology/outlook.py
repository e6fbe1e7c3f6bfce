"""What is certain about placing groups, whatever order and scores the scheduler uses.

Pods that may compete for a node form one part of the problem; parts are looked at one by one. A part of
ordinary pods is a packing of pods into nodes. A part of exclusive groups with one topology label is a packing
of groups into domains, where a domain counts as hosting a group only if its pods fit there in every order. A
part in which both meet is decided by counting: an exclusive group closes a domain to the others, one pod of the
others closes a domain to exclusive groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from policy.topology.packing import Amounts, Kind, Leftover, leftover, loss_to_others, slots_in
from policy.topology.placement import Ledger, Seat

DOMAIN: Amounts = (("domain", 1),)


@dataclass(frozen=True, slots=True)
class Party:
    """The pods of one group to place, leader first; workers may have to wait until it has a node."""

    seats: tuple[Seat, ...]
    workers_wait: bool


@dataclass(frozen=True, slots=True)
class Outlook:
    """`fits`: every order places all pods of our groups. `fails`: no order does. Neither: it depends.

    `pending` is the number of pods left Pending, waiting ones ahead included, where it is the same for every
    order; None where it is not, or was not found out.
    """

    fits: bool
    fails: bool
    pending: int | None


@dataclass(frozen=True, slots=True)
class _Type:
    """Exclusive groups with equal pods: `count` of them, one leader and its workers as seats."""

    seats: tuple[Seat, ...]
    count: int


@dataclass(frozen=True, slots=True)
class _Part:
    """Pods and groups that may meet on the nodes of `mask`.

    `waits`: workers of ours that get no leader are missing, not Pending. `spaces`: namespaces of the single pods
    that belong to groups, None for pods of no group, which exclusive groups do not keep out.
    """

    mask: int
    kinds: tuple[Kind, ...] = ()
    types: tuple[_Type, ...] = ()
    waits: bool = False
    spaces: frozenset[str | None] = frozenset()

    def joined(self, other: _Part) -> _Part:
        """Both as one part."""
        return _Part(
            self.mask | other.mask,
            self.kinds + other.kinds,
            self.types + other.types,
            self.waits or other.waits,
            self.spaces | other.spaces,
        )


class _Masks:
    """Which nodes are open to a pod before anything is placed; equal for all groups without a placed pod."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._open: dict[tuple[object, ...], int] = {}
        self._domains: dict[str, dict[str, int]] = {}

    def of(self, seat: Seat) -> int:
        """Nodes that take the pod now."""
        group = seat.group if self.ledger.has_pods(seat) else seat.group is not None
        key = (seat.demand, seat.namespace, group, seat.exclusive)
        if key not in self._open:
            self._open[key] = self.ledger.open_to(seat)
        return self._open[key]

    def domains(self, label: str) -> dict[str, int]:
        """Nodes of each domain of a label."""
        if label not in self._domains:
            masks: dict[str, int] = {}
            for i, node in enumerate(self.ledger.nodes):
                if label in node.labels:
                    masks[node.labels[label]] = masks.get(node.labels[label], 0) | 1 << i
            self._domains[label] = masks
        return self._domains[label]

    def claimed_by(self, seat: Seat) -> int:
        """All nodes of the domains that an exclusive pod may enter, and so may close to others."""
        mask = self.of(seat)
        return sum(domain for domain in self.domains(seat.exclusive or "").values() if domain & mask)


def look_ahead(ledger: Ledger, ahead: Sequence[Seat], parties: Sequence[Party]) -> Outlook:
    """The outlook for groups that come after the pods `ahead`, on a ledger in which neither is placed yet.

    Exclusive pods ahead are left out, because the rest of their groups is not known: where there are any, `fits`
    and `pending` mean nothing, and `fails` still holds.
    """
    masks = _Masks(ledger)
    parts = [*_single_parts(masks, ahead, parties), *_type_parts(masks, parties)]
    lefts = [_judge(masks, part) for part in _merged(parts)]
    exact = [left.exact for left in lefts]
    return Outlook(
        fits=all(left.never for left in lefts),
        fails=any(left.always for left in lefts),
        pending=None if None in exact else sum(n for n in exact if n is not None),
    )


def _single_parts(masks: _Masks, ahead: Sequence[Seat], parties: Sequence[Party]) -> Iterator[_Part]:
    """Pods that find their nodes one by one, gathered by kind."""
    counts: Counter[tuple[Amounts, int]] = Counter()
    before: Counter[tuple[Amounts, int]] = Counter()
    waiting: set[tuple[Amounts, int]] = set()
    spaces: dict[tuple[Amounts, int], set[str | None]] = {}
    for seat in ahead:
        if seat.exclusive is None:
            key = (seat.demand.requests, masks.of(seat))
            before[key] += 1
            spaces.setdefault(key, set()).add(seat.namespace if seat.group else None)
    counts.update(before)
    for party in parties:
        for seat in party.seats:
            if seat.exclusive is None:
                key = (seat.demand.requests, masks.of(seat))
                counts[key] += 1
                spaces.setdefault(key, set()).add(seat.namespace)
                waiting |= {key} if party.workers_wait else set()
    for key, count in counts.items():
        amounts, mask = key
        kind = Kind(amounts, mask, count, before[key])
        yield _Part(mask, kinds=(kind,), waits=key in waiting, spaces=frozenset(spaces[key]))


def _type_parts(masks: _Masks, parties: Sequence[Party]) -> Iterator[_Part]:
    """Exclusive groups, gathered by what their pods ask for."""
    alike: dict[tuple[object, ...], list[Party]] = {}
    for party in parties:
        if party.seats and party.seats[0].exclusive is not None:
            lead = party.seats[0]
            shape = (lead.namespace, lead.exclusive, *(seat.demand for seat in party.seats))
            alike.setdefault(shape, []).append(party)
    for same in alike.values():
        seats = same[0].seats
        yield _Part(masks.claimed_by(seats[0]), types=(_Type(seats, len(same)),))


def _merged(parts: Sequence[_Part]) -> list[_Part]:
    """Parts whose nodes overlap become one."""
    done: list[_Part] = []
    for part in parts:
        apart: list[_Part] = []
        for other in done:
            if other.mask & part.mask:
                part = other.joined(part)
            else:
                apart.append(other)
        done = [*apart, part]
    return done


def _judge(masks: _Masks, part: _Part) -> Leftover:
    free = masks.ledger.free
    if not part.types:
        left = leftover(part.kinds, free)
        return left if not part.waits or left.most == 0 else replace(left, most=None)
    homes = {(one.seats[0].namespace, one.seats[0].exclusive) for one in part.types}
    if len(homes) == 1 and not part.kinds:
        return _domains(masks, part.types)
    short = any(leftover([kind], free).always for kind in part.kinds)
    short = short or any(_domains(masks, [one]).always for one in part.types)
    if not short and len(homes) == 1 and part.spaces == {next(iter(homes))[0]}:
        return _beside(masks, part)
    return Leftover(never=False, always=short, fewest=int(short), most=None)


def _beside(masks: _Masks, part: _Part) -> Leftover:
    """Exclusive groups and ordinary ones of one namespace, which keep each other out of their domains.

    All fit in every order if each exclusive group finds an untouched domain though every other group and pod
    touched one of its own, and each kind of pod has slots though every exclusive group closed the domain with
    most of them and others took what they could. None can if the slots outside of as many domains as there are
    exclusive groups, those with the fewest slots, are too few.
    """
    free, types = masks.ledger.free, part.types
    domains = masks.domains(types[0].seats[0].exclusive or "")
    groups = sum(one.count for one in types)
    pods = sum(kind.count for kind in part.kinds)
    safe = True
    for one in types:
        hosts = [_hosts(masks, one.seats, domain) for domain in domains.values()]
        entered = [result for result in hosts if result is not None]
        safe = safe and all(result.never for result in entered) and len(entered) >= groups + pods
    always = False
    for kind in part.kinds:
        slots = sorted(slots_in(kind, free, domain) for domain in domains.values())
        room = slots_in(kind, free, kind.bins)
        always = always or room - sum(slots[:groups]) < kind.count
        safe = safe and room - sum(slots[-groups:]) - loss_to_others(kind, part.kinds) >= kind.count
    return Leftover(never=safe, always=always, fewest=int(always), most=0 if safe else None)


def _domains(masks: _Masks, types: Sequence[_Type]) -> Leftover:
    """Exclusive groups over the domains of one label."""
    by_value = masks.domains(types[0].seats[0].exclusive or "")
    hosting: Counter[int] = Counter()
    hoped: Counter[int] = Counter()
    certain = True
    for one in types:
        sure, perhaps = 0, 0
        for bit, domain in enumerate(by_value.values()):
            result = _hosts(masks, one.seats, domain)
            if result is not None:
                # A leader may enter a domain that then has no room for its workers, and stay.
                certain = certain and result.never
                sure |= int(result.never) << bit
                perhaps |= int(not result.always) << bit
        hosting[sure] += one.count
        hoped[perhaps] += one.count
    bins = [{"domain": 1}] * len(by_value)
    if certain:
        return leftover([Kind(DOMAIN, mask, count) for mask, count in hosting.items()], bins)
    best = leftover([Kind(DOMAIN, mask, count) for mask, count in hoped.items()], bins)
    return Leftover(never=False, always=best.always, fewest=best.fewest if best.always else 0, most=None)


def _hosts(masks: _Masks, seats: tuple[Seat, ...], domain: int) -> Leftover | None:
    """What a group leaves over in one domain that it has alone; None where not even its leader can enter."""
    if not masks.of(seats[0]) & domain:
        return None
    kinds = Counter((seat.demand.requests, masks.of(seat) & domain) for seat in seats)
    return leftover(
        [Kind(amounts, mask, count) for (amounts, mask), count in kinds.items()], masks.ledger.free
    )
