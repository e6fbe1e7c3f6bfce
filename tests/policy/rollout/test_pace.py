from __future__ import annotations

import pytest

from policy.rollout.pace import Pace, is_percent, resolve_pace


@pytest.mark.parametrize(
    ("configuration", "replicas", "expected"),
    [
        (None, 4, (1, 0)),
        ({}, 4, (0, 1)),
        ({"maxSurge": 2}, 4, (2, 1)),
        ({"maxUnavailable": 2}, 4, (0, 2)),
        ({"maxSurge": 2, "maxUnavailable": 0}, 4, (2, 0)),
        ({"maxSurge": 2, "maxUnavailable": None}, 4, (2, 1)),
        ({"maxSurge": 0, "maxUnavailable": 0}, 4, (1, 0)),
        ({"maxSurge": "25%", "maxUnavailable": "25%"}, 10, (3, 2)),
        ({"maxSurge": "25%", "maxUnavailable": "25%"}, 3, (1, 0)),
        ({"maxSurge": 0, "maxUnavailable": "25%"}, 3, (1, 0)),
        ({"maxSurge": "100%", "maxUnavailable": 0}, 6, (6, 0)),
        ({"maxSurge": "10%", "maxUnavailable": 0}, 0, (1, 0)),
        ({"maxSurge": "2", "maxUnavailable": "x%"}, 4, (1, 0)),
        ({"maxSurge": " 5%", "maxUnavailable": 1}, 4, (0, 1)),
        ({"maxSurge": True, "maxUnavailable": 1}, 4, (0, 1)),
        ({"maxSurge": "1%", "maxUnavailable": "99%"}, 1, (1, 0)),
        ({"maxSurge": "7%", "maxUnavailable": "7%"}, 100, (7, 7)),
    ],
)
def test_resolution(
    configuration: dict[str, object] | None, replicas: int, expected: tuple[int, int]
) -> None:
    assert resolve_pace(configuration, replicas) == Pace(*expected)


def test_negative_replicas_are_a_caller_error() -> None:
    with pytest.raises(ValueError, match="negative"):
        resolve_pace(None, -1)


def test_what_a_percent_is() -> None:
    assert is_percent("25%")
    assert not is_percent("25")
    assert not is_percent(25)
    assert not is_percent("25%%")
