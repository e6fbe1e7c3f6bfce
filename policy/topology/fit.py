"""Does the peak row of a plan fit the cluster?

Groups are placed on a copy of the cluster as the scheduler would place them, pods that already wait first,
and the first group that does not fit is named with the reason of every node. That alone would be one guess
among many, because the scheduler's order and scores cannot be foreseen; so a verdict says `fits` or
`does_not_fit` only where it holds for every order, and `estimate` otherwise.

Exact (compared with kube-scheduler 1.36 and LeaderWorkerSet 0.9.0): resources, node selectors, required node
affinity, taints, cordons, host ports, exclusive topology, quotas; for pods of one size on the nodes they use,
for several sizes with room to spare, and for small mixed problems. An estimate: several sizes that can crowd
each other out on many nodes; exclusive and other groups on the same domains; a domain that takes a leader but
not its workers; everything listed as unknown. Pods that wait already are taken to be scheduled before ours.
Nodes that an autoscaler might add are not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from policy.topology.facts import Cluster, Group, Pod, Unknown
from policy.topology.outlook import Outlook, Party, look_ahead
from policy.topology.placement import Ledger, NodeReason, Seat, seat_of
from policy.topology.quota import Allowance
from policy.topology.selectors import all_match

Kind: TypeAlias = Literal["fits", "does_not_fit", "estimate"]


@dataclass(frozen=True, slots=True)
class Misfit:
    """The first group that found no place, at its first pod that did not: `pod` 0 is the leader.

    `nodes` has one reason per node and `summary` the equal ones counted, most frequent first; both are empty
    where a quota refuses the pod, which `sentence` then says.
    """

    role: str
    index: int
    pod: int
    sentence: str
    nodes: tuple[NodeReason, ...] = ()
    summary: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether all groups fit; `likely` is what one plausible order gives, `unknowns` what is not modelled.

    `pending` counts pods that stay Pending, those ahead included, and `uncreated` pods of our groups that are
    never created (quota, or workers whose leader has no node); both are certain only if `exact` is true.
    `places` maps pods of our groups, as (role, group index, pod index), to node names.
    """

    kind: Kind
    likely: bool
    sentence: str
    misfit: Misfit | None
    pending: int
    uncreated: int
    exact: bool
    unknowns: tuple[Unknown, ...]
    places: tuple[tuple[tuple[str, int, int], str], ...]


@dataclass(slots=True)
class _Run:
    """What one placement of everything came to."""

    misfit: Misfit | None = None
    pending: int = 0
    uncreated: int = 0
    places: list[tuple[tuple[str, int, int], str]] | None = None
    starved: list[Pod] | None = None


def fit(cluster: Cluster, groups: Sequence[Group]) -> Verdict:
    """Whether `groups`, in the order in which they are created, fit beside everything in `cluster`.

    Pass the nodes and all unfinished pods of the cluster except those that the plan drains before the row,
    the quotas of the namespace, and the groups that the row adds. Nothing is raised for well-typed facts.
    """
    ahead = sorted(
        (pod for pod in cluster.pods if pod.node is None and not pod.gated),
        key=lambda pod: (-pod.priority, pod.created, pod.namespace, pod.name),
    )
    allowance = Allowance(cluster.quotas)
    admitted = [_admit(group, allowance) for group in groups]
    parties = [party for party, _ in admitted]
    seats = [seat_of(pod) for pod in ahead]
    ledger = Ledger(cluster, [*seats, *(seat for party in parties for seat in party.seats)])
    outlook = look_ahead(ledger, seats, parties)
    run = _run(ledger, ahead, groups, admitted)
    unknowns = [*allowance.unknowns, *_unknowns(cluster, ahead, groups)]
    if run.misfit is not None:
        unknowns += _preemption(cluster, groups)
    else:
        unknowns += _pressure(run.starved or [], groups)
    refused = any(why for _, why in admitted)
    return _verdict(groups, run, outlook, refused, tuple(dict.fromkeys(unknowns)))


def _verdict(
    groups: Sequence[Group], run: _Run, outlook: Outlook, refused: bool, unknowns: tuple[Unknown, ...]
) -> Verdict:
    fits = run.misfit is None
    kind: Kind = "estimate"
    if refused or (outlook.fails and all(unknown.restricts for unknown in unknowns)):
        kind = "does_not_fit"
    elif outlook.fits and fits and not unknowns:
        kind = "fits"
    return Verdict(
        kind=kind,
        likely=fits,
        sentence=_sentence(kind, len(groups), run.misfit, unknowns),
        misfit=run.misfit,
        pending=run.pending,
        uncreated=run.uncreated,
        exact=not unknowns and not refused and outlook.pending == run.pending,
        unknowns=unknowns,
        places=tuple(run.places or ()),
    )


def _sentence(kind: Kind, how_many: int, misfit: Misfit | None, unknowns: Sequence[Unknown]) -> str:
    if kind == "fits":
        return f"All {how_many} groups fit."
    if kind == "does_not_fit" and misfit is not None:
        return misfit.sentence
    guess = f"All {how_many} groups probably fit" if misfit is None else f"Probably not: {misfit.sentence}"
    why = " ".join(unknown.sentence for unknown in unknowns)
    return f"{guess.rstrip('.')}. {why or 'It depends on the order in which the scheduler places pods.'}"


def _admit(group: Group, allowance: Allowance) -> tuple[Party, str | None]:
    """The pods of a group that quotas let the API server create, and the sentence of the first refusal."""
    seats: list[Seat] = []
    refusal: str | None = None
    for number, demand in enumerate(group.pods):
        why = allowance.take(group.namespace, demand)
        refusal = refusal or why
        if why is None:
            seats.append(
                Seat(
                    label=f"{group.name} pod {number}",
                    namespace=group.namespace,
                    demand=demand,
                    group=f"new/{group.role}/{group.index}",
                    group_name=group.name,
                    exclusive=group.exclusive,
                )
            )
        elif number == 0:
            break  # no leader, no workers
    return Party(tuple(seats), group.leader_first or group.exclusive is not None), refusal


def _run(
    ledger: Ledger,
    ahead: Sequence[Pod],
    groups: Sequence[Group],
    admitted: Sequence[tuple[Party, str | None]],
) -> _Run:
    """Place everything once, pods ahead first, then group by group."""
    run = _Run(places=[], starved=[])
    for pod in ahead:
        if ledger.place(seat_of(pod)) is None:
            run.pending += 1
            run.starved = [*(run.starved or []), pod]
    for group, (party, refusal) in zip(groups, admitted, strict=True):
        _place_group(ledger, group, party, run)
        if refusal is not None:
            run.uncreated += len(group.pods) - len(party.seats)
            if run.misfit is None:
                sentence = f"{group.name} does not fit: {refusal}"
                run.misfit = Misfit(group.role, group.index, len(party.seats), sentence)
    return run


def _place_group(ledger: Ledger, group: Group, party: Party, run: _Run) -> None:
    for number, seat in enumerate(party.seats):
        node = ledger.place(seat)
        if node is not None:
            if run.places is not None:
                run.places.append(((group.role, group.index, number), ledger.nodes[node].name))
            continue
        run.pending += 1
        if run.misfit is None:
            run.misfit = _misfit(ledger, group, number, seat)
        if number == 0 and party.workers_wait:
            run.uncreated += len(party.seats) - 1
            return


def _misfit(ledger: Ledger, group: Group, number: int, seat: Seat) -> Misfit:
    found = [ledger.refusal(i, seat) for i in range(len(ledger.nodes))]
    reasons = tuple(reason for reason in found if reason is not None)
    counted = tuple(Counter(reason.short for reason in reasons).most_common())
    who = "its leader" if number == 0 else f"its worker {number}"
    listed = ", ".join(f"{n} {short}" for short, n in counted) or "the cluster has no nodes"
    sentence = f"{group.name} does not fit: none of {len(ledger.nodes)} nodes takes {who}: {listed}."
    return Misfit(group.role, group.index, number, sentence, reasons, counted)


def _unknowns(cluster: Cluster, ahead: Sequence[Pod], groups: Sequence[Group]) -> Iterable[Unknown]:
    for group in groups:
        for demand in dict.fromkeys(group.pods):
            for unknown in demand.unknowns:
                yield Unknown(unknown.code, f"{group.role}: {unknown.sentence}", unknown.restricts)
    if any(pod.demand.unknowns for pod in ahead):
        yield Unknown(
            "pods-ahead", "Pods that wait already use rules that are not modelled.", restricts=False
        )
    if any(pod.exclusive is not None for pod in ahead):
        yield Unknown("groups-ahead", "Exclusive groups wait already; their remaining pods are not known.")
    for pod in cluster.pods:
        if pod.repels and any(_repels(pod, group) for group in groups):
            yield Unknown("repelling-pods", f"Pod {pod.namespace}/{pod.name} keeps such pods away from it.")
            return


def _repels(pod: Pod, group: Group) -> bool:
    return any(
        (term.namespaces is None or group.namespace in term.namespaces)
        and all_match(term.selector, group.labels)
        for term in pod.repels
    )


def _preemption(cluster: Cluster, groups: Sequence[Group]) -> Iterable[Unknown]:
    """Groups that do not fit might make room by evicting pods of lower priority."""
    highest = max((group.priority for group in groups if group.preempts), default=None)
    if highest is None:
        return
    lower = sum(1 for pod in cluster.pods if pod.node is not None and pod.priority < highest)
    if lower:
        yield Unknown(
            "preemption", f"{lower} running pods have a lower priority and could be evicted.", restricts=False
        )


def _pressure(starved: Sequence[Pod], groups: Sequence[Group]) -> Iterable[Unknown]:
    """Pods of higher priority that still wait might evict ours."""
    lowest = min((group.priority for group in groups), default=0)
    if any(pod.priority > lowest for pod in starved):
        yield Unknown("preempted", "Waiting pods of higher priority could evict pods of these groups.")
