"""The chain: every event is sealed by a hash over its place, the seal before it, and its content.

Rows enter unsealed, so that writers never wait for each other; one sealer at a time appends links in commit
order, a second behind. Whoever edits, removes or moves a sealed row breaks the chain from there on; whoever
rewrites the whole chain contradicts the anchors that have left the database.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db import connection, transaction

from controlplane.audit.clock import database_now
from controlplane.audit.models import AuditEvent, AuditPending, AuditSeal

GENESIS = "0" * 64
BATCH = 1000
# Any constant will do, as long as nothing else in the database locks the same number.
_SEALER_LOCK = 7_305_119_401
# One spelling for sealing and verifying. JSONB comes as text, whatever the driver would make of it.
_COLUMNS: dict[str, str] = {
    "id": "e.id",
    "at": "e.at",
    "actor": "e.actor",
    "actor_kind": "e.actor_kind",
    "on_behalf_of": "e.on_behalf_of",
    "action": "e.action",
    "outcome": "e.outcome",
    "code": "e.code",
    "target_kind": "e.target_kind",
    "target_id": "e.target_id",
    "before": "e.before::text",
    "after": "e.after::text",
    "reason": "e.reason",
    "request_id": "e.request_id",
    "source_ip": "host(e.source_ip)",
    "fence": "e.fence",
}
_SELECTED = ", ".join(_COLUMNS.values())
_WAITING = f"""
    SELECT {_SELECTED} FROM audit_auditpending p JOIN audit_auditevent e ON e.id = p.event_id
    ORDER BY e.id LIMIT %s
"""
_LINKS = f"""
    SELECT s.seq, s.event_id, s.previous, s.hash, {_SELECTED}
    FROM audit_auditseal s LEFT JOIN audit_auditevent e ON e.id = s.event_id ORDER BY s.seq
"""


@dataclass(frozen=True, slots=True)
class Anchor:
    """The end of the chain at one moment, to be kept outside the database."""

    seq: int
    hash: str
    sealed_at: datetime


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verification found. `bad_seq` is the first link that does not hold, None for an intact chain."""

    checked: int
    bad_seq: int | None = None
    problem: str = ""

    @property
    def intact(self) -> bool:
        """Whether every link holds."""
        return not self.problem


def seal_events(*, batch: int = BATCH, batches: int = 20) -> int:
    """Seal waiting events, oldest first, at most `batch * batches` of them; the number sealed.

    One sealer works at a time (a transaction-level advisory lock); a second one returns 0 at once.
    """
    sealed = 0
    for _ in range(batches):
        done = _seal_batch(batch)
        sealed += done
        if done < batch:
            break
    return sealed


def unsealed_age(*, now: datetime | None = None) -> float:
    """Seconds since the oldest unsealed event was written; 0.0 where every event is sealed."""
    oldest = AuditPending.objects.order_by("at").values_list("at", flat=True).first()
    if oldest is None:
        return 0.0
    return max(0.0, ((now or database_now()) - oldest).total_seconds())


def last_anchor() -> Anchor | None:
    """The last link, None for an empty chain."""
    seal = AuditSeal.objects.order_by("-seq").first()
    return None if seal is None else Anchor(seal.seq, seal.hash, seal.sealed_at)


def verify_chain(*, anchors: Sequence[Anchor] = ()) -> Verdict:
    """Walk the whole chain in one snapshot and name the first link that does not hold.

    Found are: an edited event, a missing event, a missing, repeated, moved or edited link, an event that was
    taken out of the queue without being sealed, and a chain that contradicts one of `anchors`. Streams:
    memory does not grow with the chain.
    """
    with transaction.atomic():
        with connection.cursor() as cursor:
            if not connection.savepoint_ids:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        verdict = _walk(_links(), {anchor.seq: anchor for anchor in anchors})
        return verdict if not verdict.intact else _outside_chain(verdict, anchors)


def link_hash(seq: int, previous: str, event: Sequence[Any]) -> str:
    """SHA-256 over seq, the previous hash and the canonical JSON of the event's columns, in hex."""
    head = f"{seq}\n{previous}\n".encode()
    return hashlib.sha256(head + canonical_event(event)).hexdigest()


def canonical_event(event: Sequence[Any]) -> bytes:
    """The canonical JSON of one event (in the order of `_COLUMNS`), the bytes that policy.canonical gives.

    The stored documents are plain by construction (audit.redaction), which spares the walk that the general
    form needs: a million rows are verified within a minute.
    """
    document = dict(zip(_COLUMNS, event, strict=True))
    document["at"] = document["at"].astimezone(UTC).isoformat(timespec="microseconds")
    for side in ("before", "after"):
        if document[side] is not None:
            document[side] = json.loads(document[side])
    return _encode(document).encode()


_encode = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, check_circular=False
).encode


def _seal_batch(batch: int) -> int:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [_SEALER_LOCK])
        if cursor.fetchone() != (True,):
            return 0
        cursor.execute(_WAITING, [batch])
        events = cursor.fetchall()
        if not events:
            return 0
        last = last_anchor()
        seq, previous = (last.seq, last.hash) if last else (0, GENESIS)
        now = database_now()
        seals = []
        for event in events:
            seq += 1
            link = link_hash(seq, previous, event)
            seals.append(AuditSeal(seq=seq, event_id=event[0], previous=previous, hash=link, sealed_at=now))
            previous = link
        AuditSeal.objects.bulk_create(seals)
        cursor.execute(
            "DELETE FROM audit_auditpending WHERE event_id = ANY(%s)", [[row[0] for row in events]]
        )
        return len(seals)


def _links() -> Iterator[tuple[Any, ...]]:
    """(seq, event id, previous, hash), then the event's columns, all None where it is missing; by seq."""
    with connection.chunked_cursor() as cursor:
        cursor.execute(_LINKS)
        while rows := cursor.fetchmany(5000):
            yield from rows


def _walk(links: Iterator[tuple[Any, ...]], anchors: dict[int, Anchor]) -> Verdict:
    previous, expected = GENESIS, 1
    for link in links:
        seq, event_id, before, stored, event = link[0], link[1], link[2], link[3], link[4:]
        problem = ""
        if seq != expected:
            problem = f"link {expected} is missing; the next one is {seq}"
        elif before != previous:
            problem = f"link {seq} does not follow link {seq - 1}: moved, repeated or edited"
        elif event[0] is None:
            problem = f"event {event_id} of link {seq} is missing"
        elif link_hash(seq, previous, event) != stored:
            problem = f"event {event_id} is not what link {seq} sealed: one of them was edited or moved"
        elif seq in anchors and anchors[seq].hash != stored:
            problem = f"link {seq} is not the one that was anchored: the chain was written anew"
        if problem:
            return Verdict(checked=expected - 1, bad_seq=expected, problem=problem)
        previous, expected = stored, expected + 1
    return Verdict(checked=expected - 1)


def _outside_chain(verdict: Verdict, anchors: Sequence[Anchor]) -> Verdict:
    """What the walk cannot see: a tail cut off after an anchor, events that are in no link and no queue."""
    beyond = [anchor.seq for anchor in anchors if anchor.seq > verdict.checked]
    if beyond:
        first = verdict.checked + 1
        return Verdict(
            verdict.checked, first, f"link {min(beyond)} was anchored, but the chain ends before it"
        )
    loose = (
        AuditEvent.objects.filter(seal=None, pending=None).order_by("pk").values_list("pk", flat=True).first()
    )
    if loose is not None:
        problem = f"event {loose} was taken out of the queue without being sealed"
        return Verdict(verdict.checked, verdict.checked + 1, problem)
    return verdict
