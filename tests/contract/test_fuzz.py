"""Generated requests, well-formed and not, against the API's own document: no 500, no undocumented answer."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from controlplane.access.permissions import SCOPES
from controlplane.audit.clock import database_now
from tests.conftest import make_person
from tests.controlplane.access.test_tokens import mint
from tests.controlplane.approvals.requests import ask
from tests.controlplane.audit.events import write

schema = schemathesis.openapi.from_wsgi("/api/v1/schema", get_wsgi_application())
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.fixture
def one_connection() -> Iterator[None]:
    """Keep the test's connection, and with it its transaction, between requests, as Django's test client does."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def bearer(db: None, one_connection: None) -> str:
    """A token that reaches as deep as any, and a few rows to find."""
    owner = make_person("root", "operator", "approver", "admin", is_superuser=True)
    ask(owner)
    write(2)
    _, secret = mint(owner, scopes=list(SCOPES), expires_at=database_now() + timedelta(days=1))
    return secret


@schema.parametrize()
@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_generated_requests(case: schemathesis.Case, bearer: str) -> None:
    case.call_and_validate(headers={"Authorization": f"Bearer {bearer}"}, checks=CHECKS)
