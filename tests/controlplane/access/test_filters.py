"""Times in a list's filters, in any spelling that a client may send."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rest_framework.test import APIClient

from tests.conftest import Cast


@pytest.mark.parametrize("moment", ["0197-07-03T21:43:55-17:13", "2026-11-30T00:00:00+23:59"])
def test_a_time_with_any_offset_is_compared(users: Cast, api: Callable[..., APIClient], moment: str) -> None:
    assert api(users.admin).get("/api/v1/audit", {"at__lt": moment}).status_code == 200


def test_a_time_outside_the_calendar_is_refused(users: Cast, api: Callable[..., APIClient]) -> None:
    said = api(users.admin).get("/api/v1/audit", {"at__lt": "0001-01-01T00:00:00+10:00"})
    assert said.status_code in (400, 422) and said.json()["code"]
