"""The committed OpenAPI document is the one that the code gives, and says what the API does."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import call_command
from django.test import Client

COMMITTED = Path(__file__).resolve().parents[2] / "docs" / "openapi.yaml"
REGENERATE = "python manage.py spectacular --file docs/openapi.yaml"


@pytest.fixture(scope="module")
def generated() -> str:
    out = StringIO()
    call_command("spectacular", validate=True, fail_on_warn=True, stdout=out)
    return out.getvalue()


@pytest.fixture(scope="module")
def document(generated: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(generated)
    return loaded


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_the_committed_document_is_up_to_date(generated: str) -> None:
    committed = COMMITTED.read_text(encoding="utf-8")
    changed = list(difflib.unified_diff(committed.splitlines(), generated.splitlines(), "committed", "code"))
    assert not changed, "\n".join([f"Changed. If it is meant: LOCKSTEP_LINT=1 {REGENERATE}", *changed[:40]])


def test_named_actions_ask_for_an_idempotency_key(document: dict[str, Any]) -> None:
    actions = [
        (path, operation)
        for path, method, operation in operations(document)
        if method == "post" and "{" in path
    ]
    assert len(actions) >= 6
    for path, operation in actions:
        headers = {entry["name"] for entry in operation.get("parameters", []) if entry["in"] == "header"}
        assert "Idempotency-Key" in headers, path


def test_every_operation_answers_with_problems(document: dict[str, Any]) -> None:
    for path, method, operation in operations(document):
        problem = operation["responses"]["default"]["content"]
        assert set(problem) == {"application/problem+json"}, (method, path)


def test_every_list_is_paged(document: dict[str, Any]) -> None:
    lists = [
        (path, operation)
        for path, _, operation in operations(document)
        if operation["operationId"].endswith("_list")
    ]
    assert lists
    for path, operation in lists:
        names = {entry["name"] for entry in operation["parameters"]}
        assert {"page", "page_size"} <= names, path


def test_only_the_session_and_the_schema_are_open(document: dict[str, Any]) -> None:
    open_to_all = {
        path for path, _, operation in operations(document) if {} in operation.get("security", [{}])
    }
    assert open_to_all <= {"/api/v1/session", "/api/v1/schema"}


@pytest.mark.django_db
def test_the_document_is_served(client: Client) -> None:
    answer = client.get("/api/v1/schema")
    assert answer.status_code == 200
    assert yaml.safe_load(answer.content)["info"]["title"] == "Lockstep"
