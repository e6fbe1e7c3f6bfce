"""Published rollouts in the short form they are written down in: one `old|new` state per row."""

from __future__ import annotations

from dataclasses import dataclass

from policy.rollout.planner import Row


@dataclass(frozen=True)
class Table:
    """`states` is white-space separated `old|new` text, counts separated by commas, with kinds after `:`."""

    name: str
    initial: tuple[int, ...]
    target: tuple[int, ...]
    surge: tuple[int, ...]
    unavailable: tuple[int, ...]
    states: str

    def rows(self) -> list[Row]:
        return parse(self.states)


def parse(states: str) -> list[Row]:
    """`"4,2|0,0:start 4,2|1,1:up"` as rows."""
    rows = []
    for word in states.split():
        counts, _, kind = word.partition(":")
        old, new = ([int(n) for n in side.split(",")] for side in counts.split("|"))
        rows.append(Row(tuple(old), tuple(new), kind))
    return rows


PLANNED = [
    Table(
        "medium_6_2_surge1",
        (6, 2),
        (6, 2),
        (1, 1),
        (0, 0),
        "6,2|0,0:start 6,2|1,1:up 5,2|1,1:drain 5,2|2,1:up 4,2|2,1:drain 4,2|3,1:up 3,1|3,1:drain 3,1|4,2:up"
        " 2,1|4,2:drain 2,1|5,2:up 1,1|5,2:drain 1,1|6,2:up 0,0|6,2:final",
    ),
    Table(
        "large_10_10_surge3",
        (10, 10),
        (10, 10),
        (3, 3),
        (0, 0),
        "10,10|0,0:start 10,10|3,3:up 8,8|3,3:drain 8,8|5,5:up 5,5|8,8:force 3,3|8,8:drain 3,3|10,10:up"
        " 0,0|10,10:final",
    ),
    Table(
        "mixed_scale_3_5_to_5_3",
        (3, 5),
        (5, 3),
        (1, 1),
        (0, 0),
        "3,5|0,0:start 3,4|0,0:drain 2,3|0,0:drain 2,3|1,1:up 2,2|1,1:drain 2,2|2,2:up 2,2|3,2:up"
        " 1,1|3,2:drain"
        " 1,1|4,3:up 1,1|5,3:up 0,0|5,3:final",
    ),
    Table(
        "scale_up_4_4_to_6_6",
        (4, 4),
        (6, 6),
        (1, 1),
        (0, 0),
        "4,4|0,0:start 4,4|1,1:up 4,4|2,2:up 4,4|3,3:up 3,3|4,4:force 2,2|5,5:force 1,1|6,6:force"
        " 0,0|6,6:final",
    ),
    Table(
        "scale_down_role0_scale_up_role1",
        (10, 2),
        (6, 8),
        (2, 2),
        (0, 0),
        "10,2|0,0:start 8,2|0,0:drain 6,2|0,0:drain 6,2|2,2:up 4,1|2,2:drain 4,1|3,4:up 4,1|4,5:up"
        " 2,1|4,5:drain"
        " 2,1|5,7:up 2,1|6,8:up 0,0|6,8:final",
    ),
    Table(
        "surge_0_unavailable_2",
        (4, 4),
        (4, 4),
        (0, 0),
        (2, 2),
        "4,4|0,0:start 2,2|0,0:drain 2,2|2,2:up 0,0|2,2:drain 0,0|4,4:up",
    ),
    Table(
        "four_prefill_one_decode_surge_0",
        (4, 1),
        (4, 1),
        (0, 0),
        (1, 1),
        "4,1|0,0:start 3,1|0,0:drain 3,1|1,1:force 2,1|1,1:drain 2,1|2,1:force 1,1|2,1:drain 0,0|3,1:force"
        " 0,0|4,1:up",
    ),
    Table(
        "two_prefill_one_decode_surge_0",
        (2, 1),
        (2, 1),
        (0, 0),
        (1, 1),
        "2,1|0,0:start 1,1|0,0:drain 0,0|1,1:force 0,0|2,1:up",
    ),
    Table("one_one_surge_0", (1, 1), (1, 1), (0, 0), (1, 1), "1,1|0,0:start 0,0|0,0:drain 0,0|1,1:up"),
    Table(
        "role_added",
        (4, 6, 0),
        (4, 6, 2),
        (1, 1, 1),
        (0, 0, 0),
        "4,6,0|0,0,0:start 4,6,0|1,1,1:up 4,5,0|1,1,1:drain 3,5,0|1,1,1:drain 3,5,0|2,2,1:up"
        " 3,4,0|2,2,1:drain"
        " 3,4,0|2,3,1:up 2,3,0|2,3,1:drain 2,3,0|3,4,2:up 2,2,0|3,4,2:drain 1,2,0|3,4,2:drain 1,2,0|4,5,2:up"
        " 1,1,0|4,5,2:drain 1,1,0|4,6,2:up 0,0,0|4,6,2:final",
    ),
    Table("blue_green", (4, 2), (4, 2), (4, 2), (0, 0), "4,2|0,0:start 4,2|4,2:up 0,0|4,2:final"),
    Table("emergency_swap", (4, 4), (4, 4), (0, 0), (4, 4), "4,4|0,0:start 0,0|0,0:drain 0,0|4,4:up"),
    # The code's own answer to the example of KEP-766 (5,2 with surge 2 and unavailable 1).
    Table(
        "kep_766_example",
        (5, 2),
        (5, 2),
        (2, 2),
        (1, 1),
        "5,2|0,0:start 5,2|2,1:up 4,2|2,1:drain 3,2|4,2:force 2,1|4,2:drain 2,1|5,2:up 0,0|5,2:final",
    ),
]
