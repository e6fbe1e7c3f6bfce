"""Fit: verdicts hold whatever order a scheduler takes.

A scheduler is played that shares no code with the product and makes every choice at random.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from policy.topology.facts import Cluster, Group, Node, Pod
from policy.topology.fit import fit
from tests.policy.topology.builders import GPU, ZONE, demand, groups, node, standing


@dataclass(frozen=True)
class Item:
    """A pod in the queue of the played scheduler; one without a group was there before ours."""

    gpus: int
    pool: str | None = None
    group: int | None = None
    exclusive: bool = False
    leader: bool = True
    waits: bool = False


class Played:
    """Nodes of the played scheduler, and which groups have pods in which zone."""

    def __init__(self, nodes: Sequence[Node], rng: random.Random) -> None:
        self.nodes, self.rng = nodes, rng
        self.gpus = {one.name: one.allocatable[GPU] for one in nodes}
        self.places = {one.name: one.allocatable["pods"] for one in nodes}
        self.inside: dict[str | None, set[int]] = {}
        self.owners: dict[str | None, set[int]] = {}
        self.home: dict[int, str | None] = {}

    def takes(self, one: Node, item: Item) -> bool:
        zone = one.labels.get(ZONE)
        if self.gpus[one.name] < item.gpus or self.places[one.name] < 1:
            return False
        if item.pool and one.labels.get("pool") != item.pool:
            return False
        if item.group is None:
            return True
        mine = {item.group}
        if zone is not None and self.owners.get(zone, mine) != mine:
            return False
        if not item.exclusive:
            return True
        return (
            zone is not None
            and self.inside.get(zone, mine) == mine
            and self.home.get(item.group, zone) == zone
        )

    def schedule(self, item: Item) -> bool:
        choices = [one for one in self.nodes if self.takes(one, item)]
        if not choices:
            return False
        one = self.rng.choice(choices)
        self.gpus[one.name] -= item.gpus
        self.places[one.name] -= 1
        zone = one.labels.get(ZONE)
        if item.group is not None and zone is not None:
            self.inside.setdefault(zone, set()).add(item.group)
            if item.exclusive:
                self.owners.setdefault(zone, set()).add(item.group)
                self.home[item.group] = zone
        return True


def played(nodes: Sequence[Node], items: Sequence[Item], rng: random.Random) -> tuple[int, int]:
    """Pods left Pending of all, and pods of groups that have no node, after one random course of events."""
    state = Played(nodes, rng)
    queue = [item for item in items if item.group is not None and (item.leader or not item.waits)]
    later = [item for item in items if not item.leader and item.waits]
    early = [item for item in items if item.group is None]
    rng.shuffle(early)
    pending = sum(1 for item in early if not state.schedule(item))
    without = 0
    while queue:
        item = queue.pop(rng.randrange(len(queue)))
        if not state.schedule(item):
            pending += 1
            without += 1
        elif item.leader:
            queue += [waiting for waiting in later if waiting.group == item.group]
            later = [waiting for waiting in later if waiting.group != item.group]
    return pending, without + len(later)


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Cluster, list[Group], list[Item]]:
    zones = [None, "x", "y", "z"]
    nodes = tuple(
        node(
            f"n{i}",
            draw(st.sampled_from([0, 2, 4, 8])),
            draw(st.sampled_from(zones)),
            draw(st.sampled_from([1, 3, 110])),
            labels={"pool": draw(st.sampled_from(["a", "b"]))},
        )
        for i in range(draw(st.integers(1, 6)))
    )
    sizes = draw(st.sampled_from([(2,), (4,), (2, 4), (1, 2, 8)]))
    items: list[Item] = []
    waiting: list[Pod] = []
    for i in range(draw(st.integers(0, 2))):
        gpus = draw(st.sampled_from(sizes))
        waiting.append(standing(f"w{i}", None, demand(gpus)))
        items.append(Item(gpus))
    made: list[Group] = []
    number = 0
    for role in draw(st.lists(st.sampled_from(["prefill", "decode"]), min_size=1, max_size=2, unique=True)):
        gpus, lead = draw(st.sampled_from(sizes)), draw(st.sampled_from(sizes))
        pool = draw(st.sampled_from([None, None, "a"]))
        key = draw(st.sampled_from([None, ZONE]))
        first = draw(st.booleans())
        size = draw(st.integers(1, 3))
        selector = (("pool", pool),) if pool else ()
        leader, worker = demand(lead, node_selector=selector), demand(gpus, node_selector=selector)
        for index in range(draw(st.integers(1, 3))):
            pods = (leader, *([worker] * (size - 1)))
            made.append(Group(role, index, "serving", pods, exclusive=key, leader_first=first))
            waits = first or key is not None
            items.append(Item(lead, pool, number, key is not None, True, waits))
            items += [Item(gpus, pool, number, key is not None, False, waits)] * (size - 1)
            number += 1
    return Cluster(nodes, tuple(waiting)), made, items


@settings(max_examples=400, deadline=None)
@given(scenes(), st.randoms(use_true_random=False))
def test_verdicts_hold_for_every_order(
    scene: tuple[Cluster, list[Group], list[Item]], rng: random.Random
) -> None:
    cluster, made, items = scene
    verdict = fit(cluster, made)
    for _ in range(12):
        pending, without = played(cluster.nodes, items, rng)
        if verdict.kind == "fits":
            assert without == 0
        if verdict.kind == "does_not_fit":
            assert without > 0
        if verdict.exact:
            assert pending == verdict.pending


def test_most_verdicts_of_plain_scenes_are_certain() -> None:
    """A rule that answered `estimate` to everything would pass the property above."""
    certain = 0
    for seed in range(200):
        rng = random.Random(seed)
        nodes = tuple(node(f"n{i}", 8, rng.choice("xyz")) for i in range(rng.randint(2, 12)))
        exclusive = rng.choice([None, ZONE])
        size = rng.choice([1, 2])
        verdict = fit(Cluster(nodes), groups(rng.randint(1, 6), size=size, exclusive=exclusive))
        certain += verdict.kind != "estimate"
    assert certain >= 180
