"""Whose cluster it is: the Lease is read live, claimed once, and changes hands only by a takeover."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from controlplane.audit.models import AuditEvent
from controlplane.kube.errors import AlreadyExists, Conflict, Denied, ObjectMissing
from controlplane.operations.fences import next_fence
from controlplane.operations.installation import (
    check_installation,
    ensure_lease,
    take_over_cluster,
    this_installation,
)
from tests.controlplane.operations.toy import ACTOR, make_cluster

pytestmark = pytest.mark.django_db


class LeaseKube:
    """A cluster that holds one Lease, or none."""

    def __init__(self, lease: Any = None, *, refuses: Exception | None = None) -> None:
        self.lease = lease
        self.refuses = refuses

    def find(self, resource: Any, name: str, namespace: str) -> Any:
        assert (name, namespace) == ("lockstep-installation", "lockstep")
        return copy.deepcopy(self.lease)

    get = find

    def create(self, resource: Any, body: Any) -> Any:
        if self.refuses:
            raise self.refuses
        if self.lease is not None:
            raise AlreadyExists("there", status=409)
        self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": "1"}}
        return self.lease

    def replace(self, resource: Any, body: Any) -> Any:
        version = self.lease["metadata"]["resourceVersion"]
        if body["metadata"]["resourceVersion"] != version:
            raise Conflict("changed", status=409)
        self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": str(int(version) + 1)}}
        return self.lease


def lease(holder: str, transitions: int) -> Any:
    return {
        "metadata": {"name": "lockstep-installation", "namespace": "lockstep", "resourceVersion": "5"},
        "spec": {"holderIdentity": holder, "leaseTransitions": transitions},
    }


def ours(transitions: int) -> Any:
    return lease(str(this_installation().pk), transitions)


def code(kube: Any, cluster: Any) -> str | None:
    finding = check_installation(kube, cluster)
    return finding.code if finding else None


def test_a_new_cluster_is_claimed_and_stays_claimed() -> None:
    kube: Any = LeaseKube()
    cluster = make_cluster()
    assert code(kube, cluster) == "no-installation-lease"
    assert ensure_lease(kube=kube, cluster=cluster, actor=ACTOR) == "ours"
    assert (cluster.writes, cluster.lease_transitions) == ("ours", 1)
    assert code(kube, cluster) is None
    assert ensure_lease(kube=kube, cluster=cluster, actor=ACTOR) == "ours"
    assert kube.lease["spec"]["leaseTransitions"] == 1


def test_a_claim_that_was_not_written_down() -> None:
    kube: Any = LeaseKube(ours(1))
    cluster = make_cluster()
    assert ensure_lease(kube=kube, cluster=cluster, actor=ACTOR) == "ours"
    assert cluster.lease_transitions == 1


def test_nothing_is_taken_from_another_installation() -> None:
    kube: Any = LeaseKube(lease("somebody-else", 3))
    cluster = make_cluster()
    assert ensure_lease(kube=kube, cluster=cluster, actor=ACTOR) == "foreign"
    assert "somebody-else" in cluster.__class__.objects.get().writes_reason
    assert code(kube, cluster) == "foreign-installation"
    assert kube.lease["spec"]["holderIdentity"] == "somebody-else"


def test_a_lease_that_is_gone_is_not_made_again() -> None:
    kube: Any = LeaseKube()
    cluster = make_cluster(lease_transitions=2)
    assert ensure_lease(kube=kube, cluster=cluster, actor=ACTOR) == "foreign"
    assert kube.lease is None
    take_over_cluster(kube=kube, cluster=cluster, reason="gone", actor=ACTOR)
    assert kube.lease["spec"]["leaseTransitions"] == 3


@pytest.mark.parametrize("refusal", [ObjectMissing("namespace", status=404), Denied("no", status=403)])
def test_a_cluster_without_our_namespace_is_unprepared(refusal: Exception) -> None:
    kube: Any = LeaseKube(refuses=refusal)
    assert ensure_lease(kube=kube, cluster=make_cluster(), actor=ACTOR) == "unprepared"


def test_a_restored_database_is_behind() -> None:
    kube: Any = LeaseKube(ours(4))
    cluster = make_cluster(lease_transitions=2)
    assert ensure_lease(kube=kube, cluster=cluster, actor=ACTOR) == "behind"
    finding = check_installation(kube, cluster)
    assert finding is not None and finding.code == "database-behind"
    assert finding.facts == {"lease_transitions": 4, "ours": 2}


def test_a_takeover_raises_every_number_and_is_audited() -> None:
    kube: Any = LeaseKube(lease("somebody-else", 7))
    cluster = make_cluster(lease_transitions=2)
    before = next_fence(cluster)
    take_over_cluster(kube=kube, cluster=cluster, reason="they are gone", actor=ACTOR)
    cluster.refresh_from_db()
    assert (cluster.writes, cluster.lease_transitions) == ("ours", 8)
    assert kube.lease["spec"]["holderIdentity"] == str(this_installation().pk)
    assert next_fence(cluster) > 7 * 10**12 + 10**11 > before
    row = AuditEvent.objects.get(action="cluster.take_over")
    assert (row.reason, row.before) == ("they are gone", {"holder": "somebody-else", "lease_transitions": 7})
    assert code(kube, cluster) is None


def test_two_takeovers_at_once_leave_one_holder() -> None:
    kube: Any = LeaseKube(lease("somebody-else", 7))
    cluster = make_cluster()
    kube.replace_once = kube.replace

    def late(resource: Any, body: Any) -> Any:
        kube.lease = lease("a-third", 8) | {
            "metadata": {"name": "lockstep-installation", "resourceVersion": "9"}
        }
        return kube.replace_once(resource, body)

    kube.replace = late
    with pytest.raises(Conflict):
        take_over_cluster(kube=kube, cluster=cluster, reason="x", actor=ACTOR)
    cluster.refresh_from_db()
    assert cluster.writes != "ours"
