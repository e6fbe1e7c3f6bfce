"""What may overwrite what: fence numbers of watchers, and incarnations of revisions."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from controlplane.audit.actor import command
from controlplane.audit.models import AuditEvent
from controlplane.errors import BadInput, NotFound, Refused, Unavailable
from controlplane.fleet.connections import connect_cluster
from controlplane.fleet.models import Cluster, Revision, Workload
from controlplane.fleet.services import (
    Observation,
    claim_watch,
    end_revision,
    mark_cluster_writes,
    recheck_cluster,
    record_absence,
    record_observation,
    record_revision,
    record_watch,
    register_cluster,
)

ACTOR = command("test")
START = datetime(2026, 11, 30, 4, tzinfo=UTC)
ROLES = [{"name": "prefill", "spec": {"replicas": 4}}, {"name": "decode", "spec": {"replicas": 2}}]

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Cluster:
    return register_cluster(name="east", context="rig", environment="staging", actor=ACTOR)


def seen(uid: str = "u1", state: str = "settled", **fields: Any) -> Observation:
    facts: dict[str, Any] = {
        "uid": uid,
        "namespace": "llm",
        "name": f"chat-{uid}",
        "state": state,
        "target_revision": "aaaa1111",
        "headline": {},
        "summary": {},
    }
    return Observation(**(facts | fields))


class TestClusters:
    def test_a_name_is_taken_once_and_that_is_audited(self, cluster: Cluster) -> None:
        with pytest.raises(Refused) as error:
            register_cluster(name="east", context="other", environment="staging", actor=ACTOR)
        assert error.value.code == "cluster-exists"
        assert Cluster.objects.get().context == "rig"
        assert [row.action for row in AuditEvent.objects.all()] == ["cluster.register"]

    def test_what_makes_no_sense_is_refused(self) -> None:
        with pytest.raises(BadInput):
            register_cluster(name="x", context=" ", environment="staging", actor=ACTOR)
        with pytest.raises(BadInput):
            register_cluster(name="x", context="rig", environment="prod", actor=ACTOR)

    def test_the_right_to_write_is_audited_when_it_changes_and_transitions_never_shrink(
        self, cluster: Cluster
    ) -> None:
        for transitions in (3, 1):
            mark_cluster_writes(
                cluster_id=cluster.pk,
                writes=Cluster.Writes.OURS,
                reason="",
                actor=ACTOR,
                lease_transitions=transitions,
            )
        assert Cluster.objects.get().lease_transitions == 3
        assert AuditEvent.objects.filter(action="cluster.mark_writes").count() == 1
        recheck_cluster(cluster_id=cluster.pk, actor=ACTOR)
        assert Cluster.objects.get().writes == Cluster.Writes.UNKNOWN
        with pytest.raises(NotFound):
            recheck_cluster(cluster_id=0, actor=ACTOR)

    def test_without_a_kubeconfig_there_is_no_connection(self, cluster: Cluster, settings: Any) -> None:
        settings.LOCKSTEP_KUBECONFIG = ""
        with pytest.raises(Unavailable) as error:
            connect_cluster(cluster)
        assert error.value.code == "no-cluster-credentials"

    def test_a_context_that_the_kubeconfig_lacks_is_named(
        self, cluster: Cluster, settings: Any, tmp_path: Any
    ) -> None:
        file = tmp_path / "config"
        file.write_text("apiVersion: v1\nkind: Config\nclusters: []\nusers: []\ncontexts: []\n")
        settings.LOCKSTEP_KUBECONFIG = str(file)
        with pytest.raises(Unavailable) as error:
            connect_cluster(cluster)
        assert error.value.code == "no-such-context"


class TestWatchers:
    def test_the_newest_watcher_wins_and_the_older_one_writes_nothing_more(self, cluster: Cluster) -> None:
        old = claim_watch(cluster_id=cluster.pk)
        assert record_observation(cluster_id=cluster.pk, fence=old, seen=seen(state="active"))
        new = claim_watch(cluster_id=cluster.pk)
        assert new > old
        assert record_observation(cluster_id=cluster.pk, fence=old, seen=seen(state="stuck")) is None
        assert record_absence(cluster_id=cluster.pk, fence=old, present=[]) == []
        assert not record_watch(cluster_id=cluster.pk, fence=old, current=True)
        assert Workload.objects.get().state == "active"
        assert Cluster.objects.get().observed_at is None
        assert record_observation(cluster_id=cluster.pk, fence=new, seen=seen(state="settled"))
        assert record_watch(cluster_id=cluster.pk, fence=new, current=True)
        row = Workload.objects.get()
        assert (row.state, row.observed_fence) == ("settled", new)

    def test_a_row_written_under_a_higher_number_stays(self, cluster: Cluster) -> None:
        """Also where the cluster's own number was set back, as by a restored database."""
        fence = claim_watch(cluster_id=cluster.pk)
        record_observation(cluster_id=cluster.pk, fence=fence, seen=seen(state="active"))
        Workload.objects.update(observed_fence=fence + 5)
        assert record_observation(cluster_id=cluster.pk, fence=fence, seen=seen(state="stuck")) is None
        assert record_absence(cluster_id=cluster.pk, fence=fence, present=[]) == []
        assert Workload.objects.get().state == "active"

    def test_numbers_are_never_used_twice_across_clusters(self, cluster: Cluster) -> None:
        other = register_cluster(name="west", context="rig2", environment="staging", actor=ACTOR)
        numbers = [claim_watch(cluster_id=each.pk) for each in (cluster, other, cluster, other)]
        assert numbers == sorted(set(numbers))

    def test_a_problem_does_not_make_the_picture_current(self, cluster: Cluster) -> None:
        fence = claim_watch(cluster_id=cluster.pk)
        record_watch(cluster_id=cluster.pk, fence=fence, current=True, kubernetes_version="v1.36.3")
        before = Cluster.objects.get().observed_at
        record_watch(cluster_id=cluster.pk, fence=fence, current=False, problem="list: 403")
        row = Cluster.objects.get()
        assert (row.observed_at, row.problem, row.kubernetes_version) == (before, "list: 403", "v1.36.3")

    def test_absent_sets_are_gone_with_their_revisions_and_come_back_when_seen(
        self, cluster: Cluster
    ) -> None:
        fence = claim_watch(cluster_id=cluster.pk)
        for uid in ("u1", "u2"):
            workload = record_observation(cluster_id=cluster.pk, fence=fence, seen=seen(uid))
            assert workload is not None
            record_revision(workload=workload, label="aaaa1111", members=[uid], started_at=START)
        assert record_absence(cluster_id=cluster.pk, fence=fence, present=["u2"]) == ["u1"]
        assert [row.uid for row in Workload.objects.present()] == ["u2"]
        assert Revision.objects.get(workload__uid="u1").ended_at is not None
        assert Revision.objects.get(workload__uid="u2").ended_at is None
        assert record_absence(cluster_id=cluster.pk, fence=fence, present=["u2"]) == []
        record_observation(cluster_id=cluster.pk, fence=fence, seen=seen("u1"))
        assert Workload.objects.present().count() == 2


class TestRevisions:
    @pytest.fixture
    def workload(self, cluster: Cluster) -> Workload:
        found = record_observation(
            cluster_id=cluster.pk, fence=claim_watch(cluster_id=cluster.pk), seen=seen()
        )
        assert found is not None
        return found

    def test_one_incarnation_while_one_of_its_objects_is_known(self, workload: Workload) -> None:
        first = record_revision(workload=workload, label="aaaa1111", started_at=START, members=["a", "b"])
        # Slice 0 has drained, so the earliest object left is younger: still the same incarnation.
        later = START + timedelta(seconds=1)
        again = record_revision(workload=workload, label="aaaa1111", started_at=later, members=["b", "c"])
        assert again.pk == first.pk
        assert again.started_at == START
        assert again.members == ["a", "b", "c"]

    def test_a_label_that_comes_back_is_another_incarnation(self, workload: Workload) -> None:
        first = record_revision(
            workload=workload, label="aaaa1111", started_at=START, members=["a"], roles=ROLES
        )
        later = START + timedelta(hours=1)
        second = record_revision(workload=workload, label="aaaa1111", started_at=later, members=["z"])
        assert second.pk != first.pk
        first.refresh_from_db()
        assert first.ended_at is not None and second.ended_at is None
        assert first.roles == ROLES

    def test_a_revision_that_was_only_lost_from_sight_goes_on(self, workload: Workload) -> None:
        first = record_revision(workload=workload, label="aaaa1111", started_at=START, members=["a"])
        assert end_revision(workload=workload, label="aaaa1111")
        assert not end_revision(workload=workload, label="aaaa1111")
        again = record_revision(workload=workload, label="aaaa1111", started_at=START, members=["a"])
        assert again.pk == first.pk and again.ended_at is None

    def test_what_an_operation_knows_is_added_to_the_latest_incarnation(self, workload: Workload) -> None:
        record_revision(workload=workload, label="aaaa1111", started_at=START, members=["a"])
        latest = record_revision(
            workload=workload, label="aaaa1111", started_at=START + timedelta(hours=1), members=["b"]
        )
        end_revision(workload=workload, label="aaaa1111")
        told = record_revision(
            workload=workload,
            label="aaaa1111",
            roles=ROLES,
            roles_digest="sha256:x",
            images={"prefill": {"engine": {"image": "e:1", "image_ids": ["e@1"]}}},
        )
        assert told.pk == latest.pk
        assert told.roles == ROLES
        assert told.ended_at is not None, "knowing its roles does not bring a revision back"
        kept = record_revision(workload=workload, label="aaaa1111", images={"decode": {}})
        assert set(kept.images) == {"prefill", "decode"}
        assert kept.roles == ROLES

    def test_a_revision_told_before_it_was_seen_is_the_one_that_is_seen(self, workload: Workload) -> None:
        told = record_revision(workload=workload, label="bbbb2222", roles=ROLES)
        found = record_revision(workload=workload, label="bbbb2222", started_at=START, members=["a"])
        assert found.pk == told.pk
        assert found.roles == ROLES


@pytest.mark.django_db(transaction=True)
def test_parallel_watchers_leave_one_row_of_the_newest() -> None:
    cluster = register_cluster(name="east", context="rig", environment="staging", actor=ACTOR)
    barrier = threading.Barrier(4)
    numbers: list[int] = []

    def watch() -> None:
        barrier.wait(10)
        fence = claim_watch(cluster_id=cluster.pk)
        numbers.append(fence)
        for _ in range(5):
            record_observation(cluster_id=cluster.pk, fence=fence, seen=seen(state=f"by-{fence}"))
        connection.close()

    threads = [threading.Thread(target=watch) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert len(set(numbers)) == 4
    row = Workload.objects.get()
    assert (row.state, row.observed_fence) == (f"by-{max(numbers)}", max(numbers))
