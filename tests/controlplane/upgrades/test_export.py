"""An update record leaves the house as one document with version and digest."""

from __future__ import annotations

from datetime import UTC, datetime

from controlplane.upgrades.models import UpdateRecord
from controlplane.upgrades.records import exported
from policy.canonical import digest


def record(**fields: object) -> UpdateRecord:
    """A record that is not stored."""
    opened = datetime(2026, 1, 2, tzinfo=UTC)
    return UpdateRecord(operation_id=7, document={"version": 1, "share": 0.5}, opened_at=opened, **fields)


def test_the_digest_covers_all_of_it() -> None:
    found = exported(record())
    assert (found["kind"], found["version"], found["closed_at"]) == ("update-record", 1, None)
    assert found.pop("digest") == digest(found)
    closed = exported(record(outcome="succeeded", closed_at=datetime(2026, 1, 3, tzinfo=UTC)))
    assert closed["digest"] != digest(found) and closed["outcome"] == "succeeded"
