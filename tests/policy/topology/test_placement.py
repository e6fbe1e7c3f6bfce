"""The ledger: the quick way to the best node and the slow one agree, and taking is never undone by order."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from policy.topology.facts import EXCLUSIVE, Cluster, Demand, Node
from policy.topology.placement import Ledger, Seat

demands = st.builds(
    lambda gpus, cpu: Demand((("cpu", cpu), ("gpu", gpus), ("pods", 1))),
    st.integers(1, 4),
    st.integers(1, 900),
)
nodes = st.lists(
    st.builds(
        lambda gpus, cpu, pods: {"gpu": gpus, "cpu": cpu, "memory": 2**36, "pods": pods},
        st.integers(0, 8),
        st.integers(100, 3000),
        st.integers(1, 4),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=200, deadline=None)
@given(nodes, st.lists(demands, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_the_queue_of_nodes_gives_what_looking_at_each_gives(
    sizes: list[dict[str, int]], kinds: list[Demand], rng: random.Random
) -> None:
    cluster = Cluster(tuple(Node(f"n{i}", {}, size) for i, size in enumerate(sizes)))
    seats = [Seat(f"p{i}", "ns", rng.choice(kinds)) for i in range(12)]
    quick = Ledger(cluster, seats)
    slow = Ledger(cluster, [*seats, Seat("x", "ns", kinds[0], "g", exclusive=EXCLUSIVE)])
    places = [quick.place(seat) for seat in seats]
    assert places == [slow.place(seat) for seat in seats]
    for seat, place in zip(seats, places, strict=True):
        if place is None:
            assert all(quick.refusal(i, seat) is not None for i in range(len(sizes)))
    for size, free in zip(sizes, quick.free, strict=True):
        assert all(0 <= free[name] <= size[name] for name in size)
