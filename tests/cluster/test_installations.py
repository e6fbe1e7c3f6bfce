"""Two installations and one cluster, a database put back to an earlier state, a worker that wakes too late."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection

from controlplane.audit.models import AuditEvent
from controlplane.fleet.connections import connect_cluster
from controlplane.fleet.models import Cluster
from controlplane.operations.clock import database_now
from controlplane.operations.engine import advance
from controlplane.operations.installation import check_unknown_clusters
from controlplane.operations.models import Installation, Operation, Run
from tests.cluster.driving import Lockstep
from tests.cluster.midway import Midway, at_first_hold, started
from tests.cluster.test_faults import step_comes
from workers.steps import STEPS

pytestmark = [pytest.mark.rig, pytest.mark.django_db(transaction=True)]
MakeSet = Callable[..., str]
LEASE = "/apis/coordination.k8s.io/v1/namespaces/lockstep/leases/lockstep-installation"
FENCE = "lockstep.dev/fence"


@pytest.fixture(autouse=True)
def often_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep comes round at once."""
    monkeypatch.setattr(settings, "LOCKSTEP_SWEEP", 0.5)


def world(midway: Midway) -> tuple[str, str]:
    """Versions of the parameter and the set: whether anybody wrote them."""
    client = midway.client("admin")
    found = client.get(midway.parameter_path), client.get(midway.set_path)
    return found[0]["metadata"]["resourceVersion"], found[1]["metadata"]["resourceVersion"]


def pass_the_hold(midway: Midway) -> None:
    midway.lockstep.let_go(midway.lockstep.state(midway.operation))


# --- another installation


@contextmanager
def another_installation(lockstep: Lockstep) -> Iterator[str]:
    """The same process under another identity that knows nothing of the cluster; its id."""
    own = Installation.objects.get()
    knows = Cluster.objects.values("writes", "writes_reason", "lease_transitions").get()
    other = uuid.uuid4()
    Installation.objects.update(id=other)
    Cluster.objects.update(writes="unknown", writes_reason="", lease_transitions=0)
    Run.objects.filter(kind="operations.ensure_lease").delete()
    try:
        yield str(other)
    finally:
        Installation.objects.update(id=own.pk)
        Cluster.objects.update(**knows)


def take_over(lockstep: Lockstep, reason: str = "the other one is gone") -> None:
    said = lockstep.post(
        lockstep.api(lockstep.people.admin), f"clusters/{lockstep.cluster.pk}/take-over", {"reason": reason}
    )
    assert said.status_code == 202, said.json()
    lockstep.until("taken over", lambda: Run.objects.get(pk=said.json()["id"]).state == "done")


def test_a_second_installation_reads_and_never_writes(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    midway = at_first_hold(lockstep, namespace, make_set)
    before = world(midway)
    with another_installation(lockstep):
        check_unknown_clusters()
        lockstep.turn()
        cluster = Cluster.objects.get()
        assert cluster.writes == "foreign" and str(Installation.objects.get().pk) not in cluster.writes_reason
        pass_the_hold(midway)
        finding = midway.found("foreign-installation")
        assert "take the cluster over" in finding["next_action"]
        assert world(midway) == before, "nothing was written, not even a number"
        midway.verb("retry", reason="try")
        midway.found("foreign-installation")
        assert world(midway) == before
    midway.verb("retry", reason="back at home")
    midway.ends("succeeded")


def test_after_a_takeover_the_first_installation_is_the_foreign_one(midway: Midway) -> None:
    lockstep = midway.lockstep
    with another_installation(lockstep) as other:
        take_over(lockstep, "moved to another database")
        lease = midway.client("admin").get(LEASE)["spec"]
        assert (lease["holderIdentity"], lease["leaseTransitions"]) == (other, 2)
        assert Cluster.objects.get().writes == "ours"
        row = AuditEvent.objects.get(action="cluster.take_over")
        assert (row.reason, row.outcome) == ("moved to another database", "done")
    pass_the_hold(midway)
    before = world(midway)
    finding = midway.found("foreign-installation")
    assert finding["facts"] == {"holder": other, "lease_transitions": 2}
    assert world(midway) == before

    take_over(lockstep, "and back again")
    midway.verb("resume", reason="ours again")
    midway.ends("succeeded")
    number = int(midway.client("admin").get(midway.parameter_path)["data"]["fence"])
    assert number > 3 * 10**12, "the third holder's numbers are above all earlier ones"


def test_without_a_lease_nothing_is_written_until_somebody_takes_the_cluster_over(midway: Midway) -> None:
    midway.client("break-glass").delete(LEASE)
    pass_the_hold(midway)
    before = world(midway)
    midway.found("no-installation-lease")
    assert world(midway) == before
    take_over(midway.lockstep, "somebody deleted the Lease")
    midway.verb("resume", reason="ours again")
    midway.ends("succeeded")


def test_an_account_without_rights_is_told_that_the_cluster_is_not_prepared(lockstep: Lockstep) -> None:
    settings.LOCKSTEP_KUBECONFIG = str(lockstep.rig.kubeconfig("second-lockstep"))
    Cluster.objects.update(writes="unknown", lease_transitions=0)
    Run.objects.filter(kind="operations.ensure_lease").delete()
    check_unknown_clusters()
    lockstep.turn()
    cluster = Cluster.objects.get()
    assert cluster.writes == "unprepared" and "cannot get resource" in cluster.writes_reason


# --- a restored database


def restore_older_database(midway: Midway) -> None:
    """Numbers as they stood before this operation's last claims."""
    Operation.objects.filter(pk=midway.operation.pk).update(fence=1)
    with connection.cursor() as cursor:
        cursor.execute("SELECT setval('lockstep_fence', 1)")


def test_a_restored_database_is_behind_and_adopt_raises_its_numbers(midway: Midway) -> None:
    seen = int(midway.client("admin").get(midway.parameter_path)["data"]["fence"])
    restore_older_database(midway)
    pass_the_hold(midway)
    before = world(midway)
    finding = midway.found("database-behind")
    assert finding["facts"]["seen"] == seen > finding["facts"]["ours"]
    midway.verb("retry", reason="try")
    midway.found("database-behind")
    assert world(midway) == before, "nothing was written under a number that does not count"
    midway.verb("adopt", reason="we restored the backup of this morning")
    midway.ends("succeeded")
    assert int(midway.client("admin").get(midway.parameter_path)["data"]["fence"]) > seen
    row = AuditEvent.objects.get(action="operation.adopt", outcome="done")
    assert row.after is not None and row.after["adopted"]["code"] == "database-behind"


def test_a_restored_database_can_go_back_as_well(midway: Midway) -> None:
    restore_older_database(midway)
    pass_the_hold(midway)
    midway.found("database-behind")
    midway.goes_back()


def test_a_database_from_before_a_takeover_is_behind(midway: Midway) -> None:
    lease = midway.client("admin").get(LEASE)
    lease["spec"]["leaseTransitions"] = 5
    midway.client("break-glass").patch(LEASE, {"spec": {"leaseTransitions": 5}})
    pass_the_hold(midway)
    finding = midway.found("database-behind")
    assert finding["facts"] == {"lease_transitions": 5, "ours": 1}
    midway.verb("adopt", reason="ours is the one that counts")
    midway.ends("succeeded")


def test_a_number_that_no_installation_can_have_drawn_is_not_followed(midway: Midway) -> None:
    note = {"metadata": {"annotations": {FENCE: str(10**18)}}}
    midway.client("stranger").patch(midway.set_path, note)
    pass_the_hold(midway)
    midway.found("database-behind")
    said = midway.lockstep.verb(midway.operation, "adopt", {"reason": "believe it"})
    assert (said.status_code, said.json()["code"]) == (409, "number-not-plausible")
    midway.client("stranger").patch(midway.set_path, {"metadata": {"annotations": {FENCE: None}}})
    midway.verb("retry", reason="the annotation is right again")
    midway.ends("succeeded")


@pytest.mark.parametrize("text", ["many", "", "-3", "1.5"])
def test_a_number_that_is_none_stops_nobody(midway: Midway, text: str) -> None:
    """Anybody who may edit the set may write on it; it decides nothing about what our account may write."""
    midway.client("stranger").patch(midway.set_path, {"metadata": {"annotations": {FENCE: text}}})
    pass_the_hold(midway)
    midway.ends("succeeded")


# --- a worker that wakes after its lease


class Interruption:
    """`connect` for a worker that is paused just before its n-th write of a kind, past the end of its lease, while
    another one does the same step; then it goes on."""

    def __init__(self, midway: Midway, verb: str, plural: str, nth: int) -> None:
        self.midway, self.wanted, self.left = midway, (verb, plural), nth
        self.then: Any = None

    def connect(self, cluster: Cluster, *, on_call: Any = None) -> Any:
        def hook(phase: str, verb: str, resource: Any, name: str) -> None:
            if phase == "before" and (verb, resource.plural) == self.wanted:
                self.left -= 1
                if self.left == 0:
                    self.overtake()
            if on_call:
                on_call(phase, verb, resource, name)

        return connect_cluster(cluster, on_call=hook)

    def overtake(self) -> None:
        late = database_now() - timedelta(seconds=1)
        Operation.objects.filter(pk=self.midway.operation.pk).update(lease_until=late, not_before=late)
        said = advance(
            operation_id=self.midway.operation.pk, steps=STEPS, connect=connect_cluster, owner="second"
        )
        assert said in {"done", "wait"}, said
        self.then = world(self.midway)


@pytest.mark.parametrize(
    ("step", "verb", "plural", "nth"),
    [
        ("open_hold", "replace", "configmaps", 1),
        ("open_hold", "replace", "configmaps", 2),
        ("open_hold", "patch", "disaggregatedsets", 1),
        ("write_roles", "replace", "disaggregatedsets", 1),
        ("raise_row", "replace", "configmaps", 2),
        ("raise_row", "patch", "disaggregatedsets", 2),
        ("release", "replace", "configmaps", 2),
    ],
)
def test_a_worker_that_wakes_too_late_writes_nothing(
    lockstep: Lockstep, namespace: str, make_set: MakeSet, step: str, verb: str, plural: str, nth: int
) -> None:
    Cluster.objects.update(environment="development")  # a low risk: its holds need nobody
    midway = started(lockstep, namespace, make_set)
    if step == "open_hold":
        client = midway.client("admin")
        advance_fencing_once(midway)
        assert client.get(midway.parameter_path)
    else:
        step_comes(midway, step)
    paused = Interruption(midway, verb, plural, nth)
    said = advance(operation_id=midway.operation.pk, steps=STEPS, connect=paused.connect, owner="paused")
    assert paused.then is not None, "the write that was waited for did not come"
    assert said == "overtaken"
    assert world(midway) == paused.then, "refused: by the guard's number, or by the version that it had read"
    midway.ends("succeeded")


def advance_fencing_once(midway: Midway) -> None:
    """Bring the parameter into being, so that the next claim replaces it."""
    from controlplane.holds.parameter import released_parameter

    live = midway.client("admin").get(midway.set_path)
    body = released_parameter(namespace=midway.namespace, name="model", uid=live["metadata"]["uid"], fence=1)
    midway.client("lockstep").create(body)
