from __future__ import annotations

import pytest

from policy.figures import percent, seconds, whole


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (0.0, "0 %"),
        (0.00001, "less than 0.01 %"),
        (0.0004, "0.04 %"),
        (0.468, "46.8 %"),
        (0.5, "50 %"),
        (0.9999, "more than 99.9 %"),
        (1.0, "100 %"),
        (1.25, "125 %"),
    ],
)
def test_percent_never_rounds_to_nothing_or_everything(part: float, text: str) -> None:
    assert percent(part) == text


@pytest.mark.parametrize(
    ("length", "text"),
    [(0.0062, "6.2 ms"), (0.38, "380 ms"), (1.42, "1.4 s"), (90, "90 s"), (720, "12 min"), (10_800, "3 h")],
)
def test_seconds_read_in_their_best_unit(length: float, text: str) -> None:
    assert seconds(length) == text


def test_counts_have_their_thousands_apart() -> None:
    assert whole(14_820) == "14,820"
    assert whole(2.5) == "2.5"
