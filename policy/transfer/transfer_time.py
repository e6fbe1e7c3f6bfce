"""How long KV takes to move: a bound that cannot be beaten, and a range to plan with (telemetry.md 4.4).

t = fixed + descriptors * cost + bytes / (link * efficiency / reads at once), for one rank. Compare it with the
mean of `nixl_xfer_time_seconds`, never with queue times or TTFT.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policy.transfer.links import Link

FIXED_LOW, FIXED_HIGH = 0.0001, 0.002


@dataclass(frozen=True, slots=True)
class TransferTime:
    """Seconds. `floor` is bytes at the link's peak with nothing else; no measurement may lie below it.

    `nominal` is bytes at the link's nominal rate; `low` to `high` is the range to plan with. `slowest` is the
    id of the link that sets them.
    """

    floor: float
    nominal: float
    low: float
    high: float
    slowest: str


def transfer_time(
    size: int,
    link: Link,
    *,
    nics: int = 1,
    concurrency: int = 1,
    descriptors: int = 0,
    seconds_per_descriptor: float = 0.0,
    through: Sequence[Link] = (),
) -> TransferTime:
    """Time for `size` bytes over `nics` links side by side, each shared by `concurrency` reads.

    `through` are links in the same path, such as PCIe between GPU and NIC: the slowest of them counts.
    `seconds_per_descriptor` is measured by the caller; without it submission costs nothing here, and a read
    of many small blocks takes longer than the range says.
    """
    if size < 0 or nics < 1 or concurrency < 1 or descriptors < 0 or seconds_per_descriptor < 0:
        raise ValueError("bytes and descriptors are at least 0, NICs and reads at least 1")
    path = (link, *through)
    share = size / nics * concurrency
    submit = descriptors * seconds_per_descriptor
    slowest = min(path, key=lambda each: each.nominal)
    return TransferTime(
        floor=size / nics / min(each.one_way for each in path),
        nominal=share / slowest.nominal,
        low=FIXED_LOW + submit + share / min(each.plan_high for each in path),
        high=FIXED_HIGH + submit + share / min(each.plan_low for each in path),
        slowest=slowest.id,
    )


def share_of_budget(seconds: float, budget: float) -> float | None:
    """The part of a TTFT budget that a time takes; None without a budget."""
    return seconds / budget if budget > 0 else None
