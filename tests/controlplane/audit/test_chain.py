"""The chain: what is sealed stays provable, whoever holds the database."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from controlplane.audit import chain
from controlplane.audit.clock import database_now
from controlplane.audit.models import AuditEvent, AuditPending, AuditSeal
from controlplane.audit.services import seal_events, verify_chain
from policy.canonical import canonical_json
from tests.controlplane.audit.events import as_database_owner, write


@pytest.mark.django_db
def test_events_are_sealed_in_order_and_leave_the_queue() -> None:
    write(5)
    assert chain.unsealed_age(now=database_now() + timedelta(seconds=9)) >= 9
    assert seal_events(batch=2) == 5
    assert chain.unsealed_age() == 0.0
    assert not AuditPending.objects.exists()
    seals = list(AuditSeal.objects.order_by("seq"))
    assert [seal.seq for seal in seals] == [1, 2, 3, 4, 5]
    assert seals[0].previous == chain.GENESIS
    assert [seal.previous for seal in seals[1:]] == [seal.hash for seal in seals[:-1]]
    assert verify_chain() == chain.Verdict(checked=5)


@pytest.mark.django_db
def test_the_chain_hashes_the_canonical_form_of_policy() -> None:
    write(1, before={"ü": [1, "b", None, True], "a": {"z": -1, "y": "\n"}}, reason="größer")
    with connection.cursor() as cursor:
        cursor.execute(chain._WAITING, [1])
        (row,) = cursor.fetchall()
    document = json.loads(chain.canonical_event(row))
    assert chain.canonical_event(row) == canonical_json(document)
    event = AuditEvent.objects.get()
    assert document["before"] == event.before and document["reason"] == "größer"
    assert set(document) == {field.attname for field in AuditEvent._meta.concrete_fields}


def _edit(seq: int) -> None:
    AuditEvent.objects.filter(seal__seq=seq).update(reason="nothing happened")


def _edit_and_forge(seq: int) -> None:
    """Also recompute the hash of that one link."""
    _edit(seq)
    with connection.cursor() as cursor:
        cursor.execute(chain._LINKS)
        row = next(row for row in cursor.fetchall() if row[0] == seq)
    AuditSeal.objects.filter(seq=seq).update(hash=chain.link_hash(seq, row[2], row[4:]))


def _remove_event(seq: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM audit_auditevent WHERE id = (SELECT event_id FROM audit_auditseal WHERE seq = %s)",
            [seq],
        )


def _remove_both(seq: int) -> None:
    event = AuditSeal.objects.get(seq=seq).event_id
    AuditSeal.objects.filter(seq=seq)._raw_delete("default")
    AuditEvent.objects.filter(pk=event)._raw_delete("default")


def _close_the_gap(seq: int) -> None:
    _remove_both(seq)
    for later in AuditSeal.objects.filter(seq__gt=seq).order_by("seq"):
        AuditSeal.objects.filter(seq=later.seq).update(seq=later.seq - 1)


def _swap_events(seq: int) -> None:
    first, second = AuditSeal.objects.get(seq=seq), AuditSeal.objects.get(seq=seq + 1)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE audit_auditseal SET event_id = -1 WHERE seq = %s", [second.seq])
        cursor.execute(
            "UPDATE audit_auditseal SET event_id = %s WHERE seq = %s", [second.event_id, first.seq]
        )
        cursor.execute(
            "UPDATE audit_auditseal SET event_id = %s WHERE seq = %s", [first.event_id, second.seq]
        )


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("tamper", "bad"),
    [
        (_edit, 4),
        (_edit_and_forge, 5),  # the link itself holds now, the next one does not follow it
        (_remove_event, 4),
        (_remove_both, 4),
        (_close_the_gap, 4),
        (_swap_events, 4),
    ],
)
def test_tampering_is_found_at_the_first_bad_link(tamper: Callable[[int], None], bad: int) -> None:
    write(8)
    seal_events()
    with as_database_owner():
        tamper(4)
    verdict = verify_chain()
    assert (verdict.bad_seq, verdict.checked) == (bad, bad - 1), verdict.problem
    with pytest.raises(CommandError, match=f"link {bad}"):
        call_command("verify_audit", stdout=StringIO())


@pytest.mark.django_db(transaction=True)
def test_a_chain_that_was_written_anew_or_cut_contradicts_its_anchors(tmp_path: Path) -> None:
    anchors = tmp_path / "anchors"
    write(6)
    call_command("anchor_audit", append_to=anchors, stdout=StringIO())
    write(2)
    call_command("anchor_audit", append_to=anchors, stdout=StringIO())
    out = StringIO()
    call_command("verify_audit", anchors=anchors, stdout=out)
    assert out.getvalue() == "8 links hold; 2 anchors agree.\n"

    with as_database_owner():
        AuditSeal.objects.filter(seq__gte=7)._raw_delete("default")
        AuditEvent.objects.filter(seal=None)._raw_delete("default")
    assert verify_chain().intact, "the cut alone cannot be seen from inside"
    with pytest.raises(CommandError, match="link 8 was anchored"):
        call_command("verify_audit", anchors=anchors, stdout=StringIO())

    with as_database_owner():
        AuditEvent.objects.filter(seal__seq=2).update(reason="rewritten")
        AuditSeal.objects.all()._raw_delete("default")
        for event in AuditEvent.objects.order_by("pk"):
            AuditPending.objects.create(event=event, at=event.at)
    while seal_events():
        pass
    assert verify_chain().intact
    with pytest.raises(CommandError, match="link 6"):
        call_command("verify_audit", anchors=anchors, stdout=StringIO())


@pytest.mark.django_db
def test_an_event_taken_from_the_queue_is_found() -> None:
    write(2)
    seal_events()
    write(1)
    AuditPending.objects.all().delete()
    assert "without being sealed" in verify_chain().problem


@pytest.mark.django_db(transaction=True)
def test_one_sealer_at_a_time_and_writers_never_wait() -> None:
    write(10)
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [chain._SEALER_LOCK])
            entered.set()
            assert leave.wait(20)
        connection.close()

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(hold)
        assert entered.wait(20)
        assert seal_events() == 0
        write(1)
        leave.set()
        other.result(20)
    assert seal_events() == 11


@pytest.mark.django_db(transaction=True)
def test_parallel_writers_and_sealers_make_one_chain() -> None:
    def work(number: int) -> int:
        try:
            write(5)
            return seal_events(batch=3)
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(16)))
    while seal_events():
        pass
    assert verify_chain() == chain.Verdict(checked=80)


@pytest.mark.django_db
def test_an_empty_chain_holds_and_has_no_anchor() -> None:
    assert verify_chain() == chain.Verdict(checked=0)
    with pytest.raises(CommandError, match="empty"):
        call_command("anchor_audit", stdout=StringIO())
