"""The record: in the caller's transaction, append-only, and without secrets."""

from __future__ import annotations

import pytest
from django.db import DatabaseError, connection, transaction
from hypothesis import given
from hypothesis import strategies as st

from controlplane.audit.models import AuditEvent, AuditPending
from controlplane.audit.redaction import plain, presentable
from controlplane.audit.services import record_refusal, seal_events
from policy.canonical import canonical_json
from tests.conftest import KEEP_ALL
from tests.controlplane.audit.events import OLGA, write


@pytest.mark.django_db
def test_a_write_that_is_rolled_back_leaves_no_record() -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        write()
        raise ZeroDivisionError
    assert not AuditEvent.objects.exists()
    assert not AuditPending.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_outside_a_transaction_nothing_is_recorded() -> None:
    from controlplane.audit.services import record_event

    with pytest.raises(RuntimeError, match="transaction"):
        record_event(actor=OLGA, action="a", target_kind="plan", target_id=1)


@pytest.mark.django_db
@pytest.mark.parametrize("table", ["audit_auditevent", "audit_auditseal"])
@pytest.mark.parametrize(
    "statement",
    ["UPDATE {} SET {} = {}", "DELETE FROM {}", "TRUNCATE {} CASCADE"],
)
def test_postgresql_refuses_to_change_or_remove(table: str, statement: str) -> None:
    write(3)
    assert seal_events() == 3
    column = "reason" if table == "audit_auditevent" else "hash"
    with connection.cursor() as cursor:
        for name, trigger in KEEP_ALL.items():
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            cursor.execute(f"ALTER TABLE {name} ENABLE TRIGGER {trigger}")
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
            cursor.execute(statement.format(table, column, "'x'"))
    assert AuditEvent.objects.filter(seal__isnull=False).count() == 3


@pytest.mark.django_db
def test_a_refusal_carries_its_code() -> None:
    event = record_refusal(
        actor=OLGA, action="vote.cast", target_kind="change-request", target_id=4, code="requester"
    )
    assert (event.outcome, event.code, event.source_ip) == ("refused", "requester", "10.0.0.1")


@pytest.mark.django_db
def test_secrets_do_not_enter_and_changes_of_them_show() -> None:
    before = {"env": [{"name": "KEY", "value": "old-secret"}, {"name": "SAME", "value": "kept-secret"}]}
    after = {"env": [{"name": "KEY", "value": "new-secret"}, {"name": "SAME", "value": "kept-secret"}]}
    headers = {"request_headers": {"X-Key": "header-secret"}, "password": "pass-secret"}
    (event,) = write(1, before=before | headers, action="plan.edit")
    with transaction.atomic():
        from controlplane.audit.services import record_event

        event = record_event(
            actor=OLGA, action="a", target_kind="b", target_id=1, before=before | headers, after=after
        )
    event.refresh_from_db()
    assert "secret" not in str(event.before) + str(event.after)
    first, second = event.before["env"], event.after["env"]
    assert first[0]["value"] != second[0]["value"]
    assert first[1]["value"] == second[1]["value"]


documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True)
    | st.text()
    | st.datetimes()
    | st.binary(max_size=5)
    | st.characters(categories=["Cs"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=4)
        | st.frozensets(st.text(), max_size=3)
        | st.tuples(inner, inner)
    ),
    max_leaves=15,
)


@given(documents)
def test_any_document_becomes_storable_and_canonical(document: object) -> None:
    shown, _ = presentable(document, None)
    canonical = canonical_json(shown)
    assert b"\x00" not in canonical and b"\\u0000" not in canonical
    assert plain(plain(document)) == plain(document)


@pytest.mark.django_db
@pytest.mark.parametrize("odd", ["\x00", "\ud800", "x" * 10_000, float("nan"), {1, 2}, object()])
def test_odd_input_is_stored_all_the_same(odd: object) -> None:
    (event,) = write(1, reason=str(odd) if isinstance(odd, str) else "", before={"odd": odd})
    event.refresh_from_db()
    assert seal_events() == 1
