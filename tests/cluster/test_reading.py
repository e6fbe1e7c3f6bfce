"""The watch process on a real control plane: what the database says of sets, and how soon."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
import yaml
from django.db import connection

from controlplane.audit.actor import command
from controlplane.fleet.connections import connect_cluster
from controlplane.fleet.models import Cluster, Revision, Workload
from controlplane.fleet.services import claim_watch, register_cluster
from controlplane.fleet.target import templates_digest
from controlplane.kube.errors import (
    AlreadyExists,
    Conflict,
    Denied,
    Invalid,
    KubeError,
    ObjectMissing,
    ServerFailed,
)
from controlplane.kube.resources import (
    CONFIG_MAPS,
    DISAGGREGATED_SETS,
    LEADER_WORKER_SETS,
    Resource,
)
from deploy.rig import Rig, workloads
from workers.watching import ClusterWatch, watch_clusters

pytestmark = [pytest.mark.rig, pytest.mark.django_db(transaction=True)]
ACTOR = command("test")


def wait_until(what: str, look: Callable[[], Any], limit: float = 30) -> Any:
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {limit} s: {what}")


class Watching:
    """The watch process on threads of this one, as Lockstep's own account."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.watches: list[ClusterWatch] = []
        self.thread = threading.Thread(
            target=watch_clusters, kwargs={"stop": self.stop, "started": self.watches.append}, daemon=True
        )
        self.thread.start()

    def end(self) -> float:
        """Stop; how many seconds that took."""
        started = time.monotonic()
        self.stop.set()
        self.thread.join(10)
        assert not self.thread.is_alive()
        return time.monotonic() - started


@pytest.fixture
def cluster(rig: Rig, settings: Any) -> Cluster:
    settings.LOCKSTEP_KUBECONFIG = str(rig.kubeconfig("lockstep"))
    manifests = settings.LOCKSTEP_TARGET_MANIFESTS
    rig.apply((manifests / "namespace.yaml").read_text())
    for each in sorted(manifests.glob("*.yaml")):
        if each.stem != "scrape":
            rig.apply(each.read_text())
    context = yaml.safe_load(rig.kubeconfig("lockstep").read_text())["current-context"]
    return register_cluster(name="rig", context=context, environment="staging", actor=ACTOR)


@pytest.fixture
def watching(cluster: Cluster) -> Iterator[Watching]:
    running = Watching()
    yield running
    assert running.end() < 3


def test_what_a_real_server_answers_is_told_apart(
    rig: Rig, cluster: Cluster, namespace: str, make_set: Callable[..., str]
) -> None:
    label = make_set()
    name = f"model-{label}-prefill"
    parameter = {
        "metadata": {"name": f"hold-{namespace}.model", "labels": {"lockstep.dev/hold": "true"}},
        "data": {"namespace": namespace, "set": "model", "operation": "7", "fence": "2"},
    }
    with connect_cluster(cluster) as kube:
        made = kube.create(CONFIG_MAPS, parameter, "lockstep")
        try:
            with pytest.raises(AlreadyExists):
                kube.create(CONFIG_MAPS, parameter, "lockstep")
            with pytest.raises(Denied) as held:
                body = {"spec": {"replicas": 9}}
                kube.patch(LEADER_WORKER_SETS, name, namespace, body, resource_version=None, dry_run=True)
            assert held.value.policy == "lockstep-rollout-hold"
            assert "lockstep hold 7" in held.value.message
            with pytest.raises(Invalid) as stale:
                kube.replace(CONFIG_MAPS, {**made, "data": {**made["data"], "fence": "1"}})
            assert stale.value.policy == "lockstep-hold-guard"
            kube.replace(CONFIG_MAPS, {**made, "data": {**made["data"], "fence": "3"}})
            with pytest.raises(Conflict):
                kube.replace(CONFIG_MAPS, made)
        finally:
            rig.client("break-glass").delete(f"/api/v1/namespaces/lockstep/configmaps/hold-{namespace}.model")
        with pytest.raises(Denied) as unable:
            kube.list(Resource("", "v1", "secrets", "Secret"), namespace)
        assert not unable.value.by_admission
        with pytest.raises(ObjectMissing) as missing:
            kube.get(DISAGGREGATED_SETS, "nobody", namespace)
        assert not missing.value.api_missing
        with pytest.raises(KubeError):
            kube.list(Resource("nobody.example", "v1", "things", "Thing"))
        with pytest.raises(Conflict):
            kube.delete(LEADER_WORKER_SETS, name, namespace, uid="another", resource_version=None)
        live = kube.get(DISAGGREGATED_SETS, "model", namespace)
        rig.break_webhooks()
        try:
            with pytest.raises(ServerFailed) as down:
                kube.replace(DISAGGREGATED_SETS, live)
            assert down.value.webhook_down
        finally:
            rig.mend_webhooks()
        assert not kube.unanswered, "every one of these answers says that nothing was changed"
        assert kube.find_api("leaderworkerset.x-k8s.io") and not kube.find_api("nobody.example")


def row(namespace: str, name: str = "model") -> Workload | None:
    return Workload.objects.present().filter(namespace=namespace, name=name).first()


def in_state(namespace: str, state: str) -> Callable[[], Workload | None]:
    def look() -> Workload | None:
        found = row(namespace)
        return found if found and found.state == state else None

    return look


def ready(workload: Workload) -> dict[str, tuple[int, int]]:
    return {each["role"]: (each["wanted"], each["ready"]) for each in workload.headline["roles"]}


def change_image(rig: Rig, namespace: str, image: str, name: str = "model") -> None:
    client = rig.client()
    stored = client.get(workloads.set_path(namespace, name))
    for role in stored["spec"]["roles"]:
        role["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]["image"] = image
    client.replace(stored)


def test_a_set_appears_with_its_counts_images_and_roles(
    rig: Rig, watching: Watching, namespace: str, make_set: Callable[..., str]
) -> None:
    label = make_set()
    found = wait_until("the set is settled", in_state(namespace, "settled"), limit=10)
    assert found.target_revision == label
    assert ready(found) == {"prefill": (4, 4), "decode": (2, 2)}
    pods = [
        pod
        for each in found.summary["slices"][0]["revisions"][0]["roles"].values()
        for group in each["groups"]
        for pod in group["pods"]
    ]
    assert len(pods) == 6
    assert all(pod["node"] and pod["ready"] and pod["images"]["engine"]["image_id"] for pod in pods)

    def recorded() -> Revision | None:
        return Revision.objects.filter(workload=found, label=label).exclude(roles=None).first()

    revision = wait_until("the roles behind the label are on record", recorded)
    stored = rig.client().get(workloads.set_path(namespace, "model"))["spec"]["roles"]
    assert revision.roles == stored
    assert revision.roles_digest == templates_digest(stored)
    assert list(revision.images) == ["decode", "prefill"] or list(revision.images) == ["prefill", "decode"]
    cluster = Cluster.objects.with_age().get()
    assert cluster.age < 5
    assert cluster.kubernetes_version.startswith("v1.")
    assert cluster.problem == ""
    wait_until("the release is known", lambda: Cluster.objects.get().lws_version == "0.9.0")


def test_a_rollout_goes_through_its_states_and_back(
    rig: Rig, watching: Watching, namespace: str, make_set: Callable[..., str], settings: Any
) -> None:
    settings.LOCKSTEP_STUCK_AFTER = 6
    before = make_set()
    first = wait_until("settled", in_state(namespace, "settled"))
    change_image(rig, namespace, "registry.example/engine:v2-never-ready")
    waiting = wait_until("not ready yet", in_state(namespace, "not-ready-yet"), limit=10)
    assert waiting.pk == first.pk
    assert waiting.target_revision not in ("", before)
    assert sorted(waiting.headline["revisions"]) == sorted([before, waiting.target_revision])
    change_image(rig, namespace, "registry.example/engine:v1")
    back = wait_until("settled again", in_state(namespace, "settled"))
    assert back.target_revision == before
    ended = wait_until(
        "the abandoned revision has ended",
        lambda: Revision.objects.filter(workload=first).exclude(ended_at=None).first(),
    )
    assert ended.label == waiting.target_revision
    assert Revision.objects.get(workload=first, ended_at=None).label == before, "one incarnation all along"


def test_a_wedge_and_a_stuck_rollout_are_named(
    rig: Rig, cluster: Cluster, namespace: str, make_set: Callable[..., str], settings: Any
) -> None:
    settings.LOCKSTEP_STUCK_AFTER = 3
    watching = Watching()
    try:
        before = make_set()
        change_image(rig, namespace, "registry.example/engine:v2-never-ready")
        wait_until("stuck", in_state(namespace, "stuck"), limit=30)
        children = workloads.lws_of(rig.client(), namespace, "model")
        victim = next(
            each["metadata"]["name"]
            for each in children
            if each["metadata"]["labels"][workloads.REVISION_LABEL] != before
            and each["metadata"]["labels"][workloads.ROLE_LABEL] == "decode"
        )
        rig.client().delete(f"/apis/{workloads.LWS_GROUP}/namespaces/{namespace}/leaderworkersets/{victim}")
        wedged = wait_until("wedged", in_state(namespace, "wedged"), limit=30)
        assert "decode" in wedged.summary["rollout"]["reasons"]["wedged"][0]
    finally:
        watching.end()


def test_a_deleted_set_is_gone_and_its_name_may_come_back(
    rig: Rig, watching: Watching, namespace: str, make_set: Callable[..., str]
) -> None:
    label = make_set()
    first = wait_until("settled", in_state(namespace, "settled"))
    wait_until("its revision is on record", lambda: first.revisions.exists())
    rig.client().delete(workloads.set_path(namespace, "model"))
    wait_until("gone", lambda: Workload.objects.get(pk=first.pk).gone_at, limit=10)
    assert not Revision.objects.filter(workload=first, ended_at=None).exists()
    wait_until("its children are gone", lambda: not workloads.lws_of(rig.client(), namespace, "model"))
    assert make_set() == label
    second = wait_until("the new one", in_state(namespace, "settled"))
    assert second.pk != first.pk, "another UID is another set"
    assert Workload.objects.get(pk=first.pk).gone_at is not None


def test_a_restarted_api_server_is_followed_on(
    rig: Rig, watching: Watching, namespace: str, make_set: Callable[..., str]
) -> None:
    make_set()
    wait_until("settled", in_state(namespace, "settled"))
    rig.stop_apiserver()
    try:
        wait_until("the loss is said", lambda: Cluster.objects.get().problem, limit=20)
        assert row(namespace) is not None, "a server that is away has deleted nothing"
    finally:
        rig.start_apiserver()
    rig.client().patch(
        workloads.set_path(namespace, "model"), {"metadata": {"annotations": {"touched": "1"}}}
    )
    change_image(rig, namespace, "registry.example/engine:v3-never-ready")
    wait_until("the change is seen", in_state(namespace, "not-ready-yet"), limit=60)
    wait_until("current again", lambda: Cluster.objects.get().problem == "", limit=60)


def test_dropped_watches_lose_nothing(
    rig: Rig, watching: Watching, namespace: str, make_set: Callable[..., str]
) -> None:
    make_set()
    wait_until("settled", in_state(namespace, "settled"))
    watch = wait_until("the watch", lambda: watching.watches)[0]
    lists = [each.lists for each in watch.reflectors]
    for each in watch.reflectors:
        each._watch.close()  # type: ignore[union-attr]  # as a load balancer does it: without a word
    change_image(rig, namespace, "registry.example/engine:v3-never-ready")
    wait_until("the change is seen", in_state(namespace, "not-ready-yet"))
    assert [each.lists for each in watch.reflectors] == lists, "they go on where they were"


def test_a_breached_hold_and_a_missing_policy_are_said(
    rig: Rig, watching: Watching, namespace: str, make_set: Callable[..., str]
) -> None:
    label = make_set()
    wait_until("settled", in_state(namespace, "settled"))
    name = f"hold-{namespace}.model"
    data = {"namespace": namespace, "set": "model", "operation": "1", "fence": "1", "uid": "x"}
    bounds = {f"ceil.0.{label}.prefill": "3", f"ceil.0.{label}.decode": "2"}
    metadata = {"name": name, "namespace": "lockstep", "labels": {"lockstep.dev/hold": "true"}}
    lockstep = rig.client("lockstep")
    path = f"/api/v1/namespaces/lockstep/configmaps/{name}"
    lockstep.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data | bounds})
    try:
        found = wait_until("breached", in_state(namespace, "hold-breached"), limit=10)
        assert found.summary["rollout"]["reasons"]["hold-breached"] == [
            f"slice 0, prefill of {label}: 4 groups, allowed 0..3"
        ]
        held = lockstep.get(path)
        held["metadata"]["labels"]["lockstep.dev/hold"] = "released"
        lockstep.replace(held)
        wait_until("released", in_state(namespace, "settled"), limit=10)
        policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
        rig.client("break-glass").delete(f"{policies}/lockstep-rollout-hold")
        wait_until(
            "the missing policy is said",
            lambda: "admission policy lockstep-rollout-hold is missing" in Cluster.objects.get().problem,
        )
    finally:
        rig.client("break-glass").delete(path)


def test_the_newest_watcher_writes_and_the_older_one_takes_over_when_it_is_silent(
    rig: Rig,
    cluster: Cluster,
    watching: Watching,
    namespace: str,
    make_set: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("workers.watching.TAKE_OVER_AFTER_S", 3600)  # however slow this machine is
    make_set()
    wait_until("settled", in_state(namespace, "settled"))
    mine = Cluster.objects.get().watcher_fence
    newer = claim_watch(cluster_id=cluster.pk)
    change_image(rig, namespace, "registry.example/engine:v3-never-ready")
    time.sleep(3)  # longer than a change takes to be written
    assert row(namespace).state == "settled", "a watcher that was overtaken writes nothing"  # type: ignore[union-attr]
    monkeypatch.setattr("workers.watching.TAKE_OVER_AFTER_S", 6)
    wait_until(
        "it takes over from one that says nothing", lambda: Cluster.objects.get().watcher_fence > newer
    )
    wait_until("it writes again", in_state(namespace, "not-ready-yet"))
    assert Cluster.objects.get().watcher_fence > newer > mine


def test_lost_database_connections_are_survived_with_the_picture(
    rig: Rig, watching: Watching, namespace: str, make_set: Callable[..., str]
) -> None:
    make_set()
    wait_until("settled", in_state(namespace, "settled"))
    watch = wait_until("the watch", lambda: watching.watches)[0]
    observer = watch.observer
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        assert cursor.fetchone()[0] >= 1
    change_image(rig, namespace, "registry.example/engine:v3-never-ready")
    wait_until("the change is written", in_state(namespace, "not-ready-yet"))
    assert watch.observer is observer, "the cluster is not read anew for a lost connection"


def test_the_process_watches_and_ends_within_three_seconds(
    rig: Rig, cluster: Cluster, namespace: str, make_set: Callable[..., str], settings: Any
) -> None:
    address = urlsplit(os.environ["DATABASE_URL"])._replace(path="/" + connection.settings_dict["NAME"])
    environment = {
        **os.environ,
        "DATABASE_URL": urlunsplit(address),
        "LOCKSTEP_KUBECONFIG": settings.LOCKSTEP_KUBECONFIG,
    }
    process = subprocess.Popen([sys.executable, "-m", "workers.watch", "--cluster", "rig"], env=environment)
    try:
        make_set()
        wait_until("settled", in_state(namespace, "settled"))
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert time.monotonic() - started < 3
    finally:
        process.kill()
        process.wait(10)
