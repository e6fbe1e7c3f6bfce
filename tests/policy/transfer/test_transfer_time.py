"""Links and times: the published table of lower bounds, and what must hold for any transfer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.transfer.bytes import moved_bytes
from policy.transfer.links import LINKS
from policy.transfer.models import MODELS
from policy.transfer.transfer_time import FIXED_HIGH, share_of_budget, transfer_time

GB = 10**9
# Gigabytes per second: peak one way, least and most to plan with.
TABLE = {
    "nvlink4": (450, 270, 340),
    "nvlink5": (900, 540, 675),
    "ib-hdr": (25, 21.25, 23.75),
    "ib-ndr": (50, 42.5, 47.5),
    "ib-xdr": (100, 85, 95),
    "roce-400": (50, 35, 45),
    "pcie5-x16": (63, 50, 55),
    "tcp-100": (12.5, 1, 10),
    "cuda-ipc-pull": (0.5, 0.5, 0.5),
}
COLUMNS = ("llama-3-70b", "llama-3-70b over 8", "llama-3-8b", "qwen3-32b", "deepseek-v3", "gpt-oss-120b")
# Milliseconds for a prompt of 4096 tokens, one link, nothing shared.
BOUNDS = {
    "nvlink4": (4.3, 0.5, 1.7, 3.4, 0.9, 0.5),
    "nvlink5": (2.1, 0.3, 0.9, 1.7, 0.5, 0.25),
    "ib-ndr": (29.8, 3.7, 11.9, 23.9, 6.4, 3.5),
    "ib-xdr": (14.9, 1.9, 6.0, 11.9, 3.2, 1.7),
    "roce-400": (33.6, 4.2, 13.4, 26.8, 7.2, 4.0),
    "tcp-100": (134, 16.8, 54, 107, 29, 16),
    "cuda-ipc-pull": (2684, 336, 1074, 2147, 576, 315),
}


def test_links_are_those_of_the_table() -> None:
    found = {id: (link.one_way, link.plan_low, link.plan_high) for id, link in LINKS.items()}
    assert found == {id: tuple(round(rate * GB) for rate in rates) for id, rates in TABLE.items()}


@pytest.mark.parametrize(
    ("link", "column", "milliseconds"),
    [(link, column, row[at]) for link, row in BOUNDS.items() for at, column in enumerate(COLUMNS)],
)
def test_the_published_lower_bounds(link: str, column: str, milliseconds: float) -> None:
    """The column of gpt-oss lies between its sizes with blocks of 16 and of 128."""
    name, _, nics = column.partition(" over ")
    times = []
    for block_size in (16, 128):
        size = moved_bytes(MODELS[name], 4096, block_size=block_size).one_copy
        found = transfer_time(size, LINKS[link], nics=int(nics or 1))
        assert found.floor <= found.nominal <= found.high
        times.append(found.nominal * 1000)
    slack = max(0.01 * milliseconds, 0.051)
    assert min(times) - slack <= milliseconds <= max(times) + slack


def test_the_slowest_part_of_the_way_counts() -> None:
    alone = transfer_time(GB, LINKS["ib-xdr"])
    behind = transfer_time(GB, LINKS["ib-xdr"], through=[LINKS["pcie5-x16"]])
    assert (alone.slowest, behind.slowest) == ("ib-xdr", "pcie5-x16")
    assert behind.nominal == pytest.approx(GB / (52.5 * GB))


def test_sharing_and_submitting_cost_time() -> None:
    one = transfer_time(GB, LINKS["ib-ndr"])
    four = transfer_time(GB, LINKS["ib-ndr"], concurrency=4)
    assert four.nominal == pytest.approx(4 * one.nominal)
    # The bound counts one read that has the link to itself.
    assert four.floor == one.floor
    many = transfer_time(GB, LINKS["ib-ndr"], descriptors=40_960, seconds_per_descriptor=1e-6)
    assert many.low - one.low == pytest.approx(0.04096)
    assert transfer_time(0, LINKS["ib-ndr"]).high == pytest.approx(FIXED_HIGH)


def test_part_of_a_budget() -> None:
    assert share_of_budget(0.03, 0.3) == pytest.approx(0.1)
    assert share_of_budget(0.03, 0) is None


@pytest.mark.parametrize("wrong", [{"nics": 0}, {"concurrency": 0}, {"descriptors": -1}])
def test_impossible_numbers_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least"):
        transfer_time(1, LINKS["ib-ndr"], **wrong)


@given(
    st.integers(0, 10**12),
    st.integers(0, 10**12),
    st.sampled_from(sorted(LINKS)),
    st.integers(1, 16),
    st.integers(1, 64),
)
def test_more_bytes_and_more_reads_take_longer_and_more_nics_do_not(
    one: int, other: int, link: str, nics: int, reads: int
) -> None:
    small = transfer_time(min(one, other), LINKS[link], nics=nics, concurrency=reads)
    large = transfer_time(max(one, other), LINKS[link], nics=nics, concurrency=reads)
    assert small.floor <= large.floor and small.low <= large.low and small.high <= large.high
    assert large.floor <= large.low <= large.high
    wider = transfer_time(max(one, other), LINKS[link], nics=nics + 1, concurrency=reads)
    assert wider.high <= large.high
    busier = transfer_time(max(one, other), LINKS[link], nics=nics, concurrency=reads + 1)
    assert busier.nominal >= large.nominal
