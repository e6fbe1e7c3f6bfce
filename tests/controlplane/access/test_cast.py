"""The ground of the tests: a real PostgreSQL, a real Valkey, and people in them."""

from __future__ import annotations

import redis
from django.conf import settings
from django.db import connection

from tests.conftest import Cast


def test_the_cast_lives_in_postgresql(users: Cast) -> None:
    assert connection.vendor == "postgresql"
    assert {grant.role for grant in users.operator.grants.all()} == {"operator"}
    assert not users.outsider.grants.exists()


def test_valkey_answers() -> None:
    with redis.Redis.from_url(settings.LOCKSTEP_BROKER_URL) as client:
        assert client.ping()
