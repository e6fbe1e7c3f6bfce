"""An update record leaves the house as one document with version and digest."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from controlplane.audit.models import AuditEvent
from controlplane.fleet.models import Workload
from controlplane.operations.models import Operation
from controlplane.upgrades.models import Plan, UpdateRecord
from controlplane.upgrades.records import close_superseded, exported
from policy.canonical import digest
from tests.conftest import Cast
from tests.controlplane.operations.toy import make_cluster, make_operation


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


@pytest.mark.django_db
def test_the_record_of_an_upgrade_that_was_taken_over_is_closed(users: Cast) -> None:
    cluster = make_cluster()
    running = make_operation(users.operator, cluster=cluster, memory={"old": "aaaaaaaa", "new": "bbbbbbbb"})
    workload = Workload.objects.create(
        cluster=cluster,
        uid="u",
        namespace="n",
        name="s",
        state="settled",
        observed_at=cluster.created_at,
        observed_fence=1,
    )
    plan = Plan.objects.create(
        workload=workload, requester=users.operator, draft={}, options={}, created_at=cluster.created_at
    )
    document = {"revisions": {"prefill": {"before": "aaaaaaaa", "after": ""}}}
    found = UpdateRecord.objects.create(
        operation=running, plan=plan, document=document, opened_at=cluster.created_at
    )
    assert close_superseded() == 0, "it runs"
    Operation.objects.filter(pk=running.pk).update(state="superseded", finished_at=cluster.created_at)
    assert close_superseded() == 1
    found.refresh_from_db()
    assert (found.outcome, found.document["revisions"]["prefill"]["after"]) == ("superseded", "aaaaaaaa")
    assert found.digest and AuditEvent.objects.filter(action="update-record.close").count() == 1
    assert close_superseded() == 0, "once"
