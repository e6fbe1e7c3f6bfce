"""Links that KV moves over, as data (research/telemetry.md 4.3). Rates are bytes per second, GB = 10**9.

Headlines mix bits with bytes and both directions with one; `one_way` has neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

GB = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Link:
    """One kind of link, for one GPU or one NIC.

    `one_way` is its peak in one direction, which nothing passes. Plan with `plan_low` to `plan_high`;
    `nominal` is the one rate that tables of this project use.
    """

    id: str
    label: str
    headline: str
    one_way: int
    plan_low: int
    plan_high: int
    nominal: int


def _link(
    id: str, label: str, headline: str, one_way: float, plan: tuple[float, float], nominal: float
) -> tuple[str, Link]:
    low, high = plan
    rates = [round(each * GB) for each in (one_way, low, high, nominal)]
    return id, Link(id, label, headline, rates[0], rates[1], rates[2], rates[3])


LINKS: Mapping[str, Link] = dict(
    [
        _link("nvlink4", "NVLink 4 (H100, H200)", "900 GB/s, both directions summed", 450, (270, 340), 315),
        _link("nvlink5", "NVLink 5 (B200, GB200)", "1.8 TB/s, both directions summed", 900, (540, 675), 630),
        _link("ib-hdr", "InfiniBand HDR", "200 Gb/s", 25, (21.25, 23.75), 22),
        _link("ib-ndr", "InfiniBand NDR", "400 Gb/s", 50, (42.5, 47.5), 45),
        _link("ib-xdr", "InfiniBand XDR", "800 Gb/s", 100, (85, 95), 90),
        _link("roce-400", "RoCE 400G", "400 Gb/s", 50, (35, 45), 40),
        _link("pcie5-x16", "PCIe 5 x16 (GPU to NIC)", "64 GB/s", 63, (50, 55), 52.5),
        _link("tcp-100", "Ethernet 100G, TCP", "100 Gb/s", 12.5, (1, 10), 10),
        # Seen, not specified: UCX serves reads between pods of one node over TCP (vllm#52607).
        _link("cuda-ipc-pull", "Same node without RDMA, pull", "about 0.5 GB/s seen", 0.5, (0.5, 0.5), 0.5),
    ]
)
