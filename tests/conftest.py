"""What every test stands on: servers, Django, and a fixed cast of people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import django
import pytest
from django.conf import settings
from hypothesis import settings as property_settings

from tests import services

pytest_plugins = ("tests.legs", "tests.alone")

# A loaded machine is no failure of a property.
property_settings.register_profile("lockstep", deadline=None)
property_settings.load_profile("lockstep")
services.begin()
settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # tests sign in often
django.setup()

if TYPE_CHECKING:
    from rest_framework.test import APIClient

    from controlplane.access.models import User

PASSWORD = "correct horse battery staple"
# Triggers against TRUNCATE, by table.
KEEP_ALL = {"audit_auditevent": "audit_event_keep_all", "audit_auditseal": "audit_seal_keep_all"}


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the servers after the last test of the run."""
    services.end()


@dataclass(frozen=True)
class Cast:
    """The people of the tests. Each holds one grant everywhere; `outsider` holds none. All share PASSWORD."""

    operator: User
    approver: User
    second_approver: User
    viewer: User
    admin: User
    outsider: User


@pytest.fixture
def users(db: None) -> Cast:
    """The cast, in the database."""
    return make_cast()


def make_cast() -> Cast:
    """Create the cast; also for tests with real transactions."""
    from controlplane.access.models import Grant

    role = Grant.Role
    return Cast(
        operator=make_person("olga", role.OPERATOR),
        approver=make_person("ana", role.APPROVER),
        second_approver=make_person("ben", role.APPROVER),
        viewer=make_person("vic", role.VIEWER),
        admin=make_person("ada", role.ADMIN),
        outsider=make_person("otto"),
    )


def make_person(username: str, *roles: str, cluster: str = "", namespace: str = "", **fields: Any) -> User:
    """A person with the given roles in one scope, and PASSWORD."""
    from django.contrib.auth.hashers import make_password

    from controlplane.access.models import Grant, User

    user = User.objects.create(username=username, password=make_password(PASSWORD), **fields)
    for role in roles:
        Grant.objects.create(user=user, role=role, cluster=cluster, namespace=namespace)
    return user


@pytest.fixture
def api(db: None) -> Callable[..., APIClient]:
    """`api(user)` is signed in as that person just now, `api(token=...)` is a program, `api()` nobody."""
    from rest_framework.test import APIClient

    def make(user: User | None = None, *, token: str = "") -> APIClient:
        client = APIClient()
        client.default_format = "json"
        if user is not None:
            client.force_login(user)
            session = client.session
            session["signed_in_at"] = datetime.now(UTC).isoformat()
            session.save()
        if token:
            client.credentials(HTTP_AUTHORIZATION=f"Bearer {token}")
        return client

    return make


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> None:
    """Between tests with real transactions the tables are emptied, which the audit tables refuse: allow that."""
    from django.db import connection

    with django_db_blocker.unblock(), connection.cursor() as cursor:
        for table, trigger in KEEP_ALL.items():
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER {trigger}")
