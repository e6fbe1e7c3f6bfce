"""The read model of request paths: read every few seconds, beside the watch of sets and under its fence number."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import structlog
from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connections

from controlplane.errors import LockstepError
from controlplane.fleet.connections import connect_cluster
from controlplane.fleet.models import Cluster
from controlplane.kube.client import Kube
from controlplane.kube.errors import KubeError
from controlplane.kube.resources import CONFIG_MAPS, INFERENCE_POOLS
from controlplane.paths.objects import read_objects
from controlplane.paths.rounds import measure_round
from controlplane.paths.services import record_pools, seen_pools
from controlplane.paths.view import derive_paths
from workers.threads import OnThread

log = structlog.get_logger(__name__)
Json = dict[str, Any]
KEPT_S = 300.0


class ConfigMaps:
    """Reads ConfigMaps one by one; what is immutable is read once in KEPT_S, for as long as it is asked for. It can be
    deleted and made anew under its name, so it is not kept for ever."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], tuple[float, Json]] = {}
        self._asked: set[tuple[str, str]] = set()

    def reader(self, kube: Kube) -> Callable[[str, str], Json | None]:
        """For one round over the pools; what the round before did not ask for is forgotten."""
        now = time.monotonic()
        self._kept = {
            key: (until, kept)
            for key, (until, kept) in self._kept.items()
            if key in self._asked and now < until
        }
        self._asked = set()

        def read(namespace: str, name: str) -> Json | None:
            key = (namespace, name)
            self._asked.add(key)
            if key in self._kept:
                return self._kept[key][1]
            found = kube.find(CONFIG_MAPS, name, namespace)
            if found and found.get("immutable"):
                self._kept[key] = (now + KEPT_S, found)
            return found

        return read


class PathsWatch(OnThread):
    """One cluster's paths, until `stop` is set. `fence` gives the number of this process's watch, None while it has
    none: then nothing is read."""

    def __init__(
        self, *, cluster_id: int, name: str, fence: Callable[[], int | None], stop: threading.Event
    ) -> None:
        super().__init__(f"paths-{name}")
        self.cluster_id = cluster_id
        self._fence = fence
        self._stop = stop
        self._config_maps = ConfigMaps()
        self._log = log.bind(cluster=name)

    def _run(self) -> None:
        while not self._stop.wait(settings.LOCKSTEP_PATHS_EVERY):
            try:
                self.read()
            except (LockstepError, KubeError) as error:
                self._log.warning("paths_not_read", error=str(error))
            except DatabaseError as error:
                self._log.warning("database_away", error=str(error).strip())
                connections.close_all()
            except Exception:
                self._log.exception("paths_failed")
        connections.close_all()

    def read(self) -> int | None:
        """Read all paths once and store them, then the metric source for as many as half the time between two rounds
        allows; how many pools changed, None where this process may not write. Where pools may not be listed nothing is
        stored: they are not gone, and what is shown grows old."""
        fence = self._fence()
        if fence is None:
            return None
        cluster = Cluster.objects.get(pk=self.cluster_id)
        with connect_cluster(cluster) as kube:
            objects = read_objects(kube, config_map=self._config_maps.reader(kube))
            if INFERENCE_POOLS.plural in objects.unread:
                self._log.warning("pools_not_listed", unread=list(objects.unread))
                return 0
            paths = derive_paths(objects)
        changed = record_pools(cluster_id=self.cluster_id, fence=fence, seen=seen_pools(paths))
        if changed is not None:
            budget = settings.LOCKSTEP_PATHS_EVERY / 2
            measure_round(cluster=cluster, fence=fence, objects=objects, paths=paths, budget_s=budget)
        return changed
