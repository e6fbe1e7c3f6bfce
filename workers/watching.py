"""What the watch process does: one thread per cluster that writes, reflectors beside it, one thread that
rings.

One watcher per cluster writes: the one with the newest fence number. One that was overtaken stands by, and
takes over when the picture in the database is no longer kept current.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from datetime import timedelta

import structlog
from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connections

from controlplane import queue
from controlplane.errors import LockstepError
from controlplane.fleet.connections import connect_cluster
from controlplane.fleet.models import Cluster
from controlplane.fleet.names import SET_NAME
from controlplane.fleet.observer import Observer, Superseded
from controlplane.fleet.parameter import NAMESPACE, POLICIES, is_parameter
from controlplane.fleet.projections import keep_name, keep_node, keep_object, keep_pod
from controlplane.fleet.release import guess_release
from controlplane.fleet.services import claim_watch, record_watch
from controlplane.holds.scalers.orphans import left_paused
from controlplane.kube.client import Kube
from controlplane.kube.errors import KubeError
from controlplane.kube.reflector import Change, Reflector
from controlplane.kube.resources import (
    ADMISSION_POLICIES,
    ADMISSION_POLICY_BINDINGS,
    CONFIG_MAPS,
    DISAGGREGATED_SETS,
    LEADER_WORKER_SETS,
    NODES,
    PODS,
    Resource,
)
from controlplane.operations.models import Operation, OperationTarget
from controlplane.operations.orphans import orphan_holds
from controlplane.operations.sweep import ring_due
from workers.threads import OnThread
from workers.watching_paths import PathsWatch

log = structlog.get_logger(__name__)

PASS_S = 0.1
HEARTBEAT_S = 2.0
# A picture that nobody has kept current for so long is taken over.
TAKE_OVER_AFTER_S = 20.0
AFTER_DATABASE_ERROR_S = 1.0
AFTER_CLUSTER_ERROR_S = 5.0
FIND_CLUSTERS_S = 2.0


class Bells(OnThread):
    """Collects whom to wake and rings on a thread of its own, so that a broker that is away holds nobody
    up. Also rings what is due, as beat does: each is enough alone."""

    def __init__(self, stop: threading.Event) -> None:
        super().__init__("bells")
        self._stop = stop
        self._lock = threading.Lock()
        self._operations: set[int] = set()
        self._wanted = threading.Event()

    def join(self, seconds: float) -> bool:
        """Wait for the end, after `stop` has been set; whether it has come."""
        self._wanted.set()
        return super().join(seconds)

    def wake_targets(self, cluster_id: int, uids: set[str]) -> None:
        """Wake the unfinished operations that have taken one of these sets."""
        taken = OperationTarget.objects.filter(
            cluster_id=cluster_id, kind="set", uid__in=uids, released=False
        )
        self._add(taken.values_list("operation_id", flat=True))

    def wake_cluster(self, cluster_id: int) -> None:
        """Wake every unfinished operation of a cluster."""
        self._add(Operation.objects.unfinished().filter(cluster_id=cluster_id).values_list("pk", flat=True))

    def _add(self, operations: Iterable[int]) -> None:
        with self._lock:
            self._operations.update(operations)
            if self._operations:
                self._wanted.set()

    def _run(self) -> None:
        next_sweep = time.monotonic()
        while not self._stop.is_set():
            self._wanted.wait(max(0.0, next_sweep - time.monotonic()))
            with self._lock:
                ringing, self._operations = self._operations, set()
                self._wanted.clear()
            try:
                for operation in ringing:
                    queue.ring(queue.WAKE, operation)
                if time.monotonic() >= next_sweep:
                    next_sweep = time.monotonic() + settings.LOCKSTEP_TICK
                    ring_due()
            except DatabaseError as error:
                log.warning("database_away", error=str(error).strip())
                connections.close_all()
                self._stop.wait(AFTER_DATABASE_ERROR_S)
            except Exception:
                log.exception("bells_failed")
                self._stop.wait(AFTER_DATABASE_ERROR_S)
        connections.close_all()


class ClusterWatch(OnThread):
    """One cluster, until `stop` is set."""

    def __init__(self, *, cluster_id: int, name: str, bells: Bells, stop: threading.Event) -> None:
        super().__init__(f"watch-{name}")
        self.cluster_id = cluster_id
        self.name = name
        self.observer: Observer | None = None
        self.fence: int | None = None  # of the claim that stands; None while there is none
        self.reflectors: list[Reflector] = []
        self._bells = bells
        self._stop = stop
        self._policies_moved = threading.Event()
        self._log = log.bind(cluster=name)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow()
            except Superseded:
                self._log.warning("watch_superseded")
                self._stand_by()
            except (LockstepError, KubeError) as error:
                self._log.warning("cluster_not_reached", error=str(error))
                self._note_problem(str(error))
                self._stop.wait(AFTER_CLUSTER_ERROR_S)
            except DatabaseError as error:
                self._after_database_error(error)
            except Exception:
                self._log.exception("watch_failed")
                self._stop.wait(AFTER_CLUSTER_ERROR_S)
        connections.close_all()

    def _follow(self) -> None:
        """Claim the cluster and keep its rows current until somebody else claims it or the process ends."""
        cluster = Cluster.objects.get(pk=self.cluster_id)
        with connect_cluster(cluster) as kube:
            fence = self.fence = claim_watch(cluster_id=self.cluster_id)
            self._log.info("watch_claimed", fence=fence)
            observer = self.observer = Observer(
                cluster_id=self.cluster_id,
                fence=fence,
                stuck_after=timedelta(seconds=settings.LOCKSTEP_STUCK_AFTER),
                wake=lambda uids: self._bells.wake_targets(self.cluster_id, uids),
            )
            required, others = self._reflect(kube, observer)
            self.reflectors = required + others
            for each in self.reflectors:
                each.start()
            try:
                self._keep_current(kube, observer, fence, required, others)
            finally:
                self.fence = None
                for each in self.reflectors:
                    each.stop(wait=0)

    def _reflect(self, kube: Kube, observer: Observer) -> tuple[list[Reflector], list[Reflector]]:
        """The reflectors that a picture needs, and those that only add to it: an unprepared cluster lacks
        them."""

        def take(change: Change) -> None:
            observer.picture.take(change, now=time.monotonic())

        def take_parameter(change: Change) -> None:
            if any(is_parameter(item) for item in (change.old, change.new) if item):
                take(change)

        def note_policy(change: Change) -> None:
            if change.key[1] in POLICIES:
                self._policies_moved.set()

        required = [
            Reflector(kube, DISAGGREGATED_SETS, project=keep_object, on_change=take),
            Reflector(kube, LEADER_WORKER_SETS, label_selector=SET_NAME, project=keep_object, on_change=take),
            Reflector(kube, PODS, label_selector=SET_NAME, project=keep_pod, on_change=take),
            Reflector(kube, NODES, project=keep_node, on_change=take),
        ]
        others = [
            Reflector(kube, CONFIG_MAPS, namespace=NAMESPACE, project=keep_object, on_change=take_parameter),
            Reflector(kube, ADMISSION_POLICIES, project=keep_name, on_change=note_policy),
            Reflector(kube, ADMISSION_POLICY_BINDINGS, project=keep_name, on_change=note_policy),
        ]
        return required, others

    def _keep_current(
        self, kube: Kube, observer: Observer, fence: int, required: list[Reflector], others: list[Reflector]
    ) -> None:
        versions = _Versions(kube)
        complete = False
        heartbeat_at = 0.0
        while not self._stop.wait(PASS_S):
            try:
                if not complete and all(each.synced.is_set() for each in required):
                    observer.picture.mark_all(now=time.monotonic())
                    observer.record_absent()
                    complete = True
                if complete:
                    observer.work()
                if self._policies_moved.is_set():
                    self._bells.wake_cluster(self.cluster_id)
                    self._policies_moved.clear()
                if time.monotonic() >= heartbeat_at:
                    heartbeat_at = time.monotonic() + HEARTBEAT_S
                    current = complete and all(each.current for each in required)
                    problem = "; ".join(filter(None, [_problem(required, others), self._orphans(others)]))
                    self._beat(fence, current, problem, versions)
            except DatabaseError as error:
                # The reflectors go on: the picture outlives the database's absence.
                self._after_database_error(error)

    def _orphans(self, others: list[Reflector]) -> str:
        parameters = next(each for each in others if each.resource == CONFIG_MAPS)
        kept = [item for item in list(parameters.store.values()) if is_parameter(item)]
        holds = orphan_holds(cluster_id=self.cluster_id, parameters=kept)
        return "; ".join([*holds, *left_paused(self.cluster_id)])

    def _beat(self, fence: int, current: bool, problem: str, versions: _Versions) -> None:
        versions.look()
        stands = record_watch(
            cluster_id=self.cluster_id,
            fence=fence,
            current=current,
            problem=problem,
            kubernetes_version=versions.kubernetes,
            lws_version=versions.lws,
        )
        if not stands:
            raise Superseded

    def _stand_by(self) -> None:
        """Wait until the newer watcher has not kept the picture current for a while. One that has just begun
        and has shown nothing yet gets the same while for its first look."""
        began = time.monotonic()
        while not self._stop.wait(HEARTBEAT_S):
            try:
                age = Cluster.objects.age_of(self.cluster_id)
            except DatabaseError as error:
                self._after_database_error(error)
                continue
            if age is None:
                age = time.monotonic() - began
            if age > TAKE_OVER_AFTER_S:
                self._log.warning("watch_taken_over", age=age)
                return

    def _note_problem(self, problem: str) -> None:
        """Say why nothing is seen; only where no watcher keeps the picture current."""
        try:
            age = Cluster.objects.age_of(self.cluster_id)
            if age is None or age > TAKE_OVER_AFTER_S:
                fence = Cluster.objects.get(pk=self.cluster_id).watcher_fence
                record_watch(cluster_id=self.cluster_id, fence=fence, current=False, problem=problem)
        except DatabaseError as error:
            self._after_database_error(error)

    def _after_database_error(self, error: Exception) -> None:
        self._log.warning("database_away", error=str(error).strip())
        connections.close_all()
        self._stop.wait(AFTER_DATABASE_ERROR_S)


class _Versions:
    """What runs in the cluster; asked for until it is known."""

    def __init__(self, kube: Kube) -> None:
        self.kubernetes = ""
        self.lws = ""
        self._kube = kube
        self._schema_seen = False

    def look(self) -> None:
        """Ask for what is not known yet; a cluster that does not answer is asked again."""
        try:
            if not self.kubernetes:
                self.kubernetes = str(self._kube.server_version().get("gitVersion") or "")
            if not self._schema_seen:
                schema = self._kube.find_schema(DISAGGREGATED_SETS)
                self._schema_seen = schema is not None
                self.lws = guess_release(schema or {})
        except KubeError:
            return


def _problem(required: list[Reflector], others: list[Reflector]) -> str:
    """Why the picture is not current, and what the cluster lacks, in one line."""
    found = [f"{each.resource.plural}: {each.problem}" for each in required + others if each.problem]
    for reflector in others:
        if (
            reflector.resource in (ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS)
            and reflector.synced.is_set()
        ):
            names = {key[1] for key in list(reflector.store)}
            found += [
                f"{_word(reflector.resource)} {name} is missing" for name in POLICIES if name not in names
            ]
    return "; ".join(found)


def _word(resource: Resource) -> str:
    return "admission policy" if resource == ADMISSION_POLICIES else "binding of admission policy"


def _watch_paths(watch: ClusterWatch, stop: threading.Event) -> PathsWatch:
    return PathsWatch(
        cluster_id=watch.cluster_id, name=watch.name, fence=lambda: watch.fence, stop=stop
    ).start()


def watch_clusters(
    *, only: str = "", stop: threading.Event, started: Callable[[ClusterWatch], None] = lambda watch: None
) -> None:
    """Watch every cluster (or the one named `only`), also those registered later, until `stop` is set.
    `started` is told of each watch."""
    bells = Bells(stop)
    bells.start()
    watches: dict[int, ClusterWatch] = {}
    paths: list[PathsWatch] = []
    while True:
        try:
            rows = Cluster.objects.filter(name=only) if only else Cluster.objects.all()
            for pk, name in rows.values_list("pk", "name"):
                if pk not in watches:
                    watches[pk] = ClusterWatch(cluster_id=pk, name=name, bells=bells, stop=stop).start()
                    started(watches[pk])
                    paths.append(_watch_paths(watches[pk], stop))
        except DatabaseError as error:
            log.warning("database_away", error=str(error).strip())
            connections.close_all()
        if stop.wait(FIND_CLUSTERS_S):
            break
    end = time.monotonic() + 2
    joins = [watch.join for watch in watches.values()] + [each.join for each in paths]
    for join in joins:
        join(max(0.0, end - time.monotonic()))
    bells.join(max(0.0, end - time.monotonic()))
    connections.close_all()
