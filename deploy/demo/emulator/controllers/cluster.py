"""All programs of one emulated cluster, ready to be run as parts of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deploy.demo.emulator.controllers.deployments import Deployments
from deploy.demo.emulator.controllers.disaggregated import DisaggregatedSets
from deploy.demo.emulator.controllers.group_pods import GroupPods
from deploy.demo.emulator.controllers.group_sets import GroupSets
from deploy.demo.emulator.controllers.images import Images
from deploy.demo.emulator.controllers.jobs import Jobs
from deploy.demo.emulator.controllers.kubelets import Kubelets, NodeStatus
from deploy.demo.emulator.controllers.node_lifecycle import NodeLifecycle
from deploy.demo.emulator.controllers.pod_webhook import PodWebhook
from deploy.demo.emulator.controllers.program import Program
from deploy.demo.emulator.controllers.replica_sets import ReplicaSets
from deploy.demo.emulator.controllers.scheduler import Scheduler
from deploy.demo.emulator.controllers.settings import Settings
from deploy.demo.emulator.controllers.stateful_sets import StatefulSets

if TYPE_CHECKING:
    from deploy.demo.emulator.emulator import Emulator
    from deploy.demo.emulator.server import Server


class Cluster:
    """The programs: ``lws``, ``controller_manager``, ``scheduler``, ``kubelets``; ``parts`` are all of them.

    ``images`` says what stands behind image tags. ``Settings.slices`` must fit the kinds that the store serves.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.images = Images()
        times = self.settings.times
        self.lws = Program("lws", [DisaggregatedSets(self.settings), GroupSets(), GroupPods()], times)
        self.controller_manager = Program(
            "controller-manager",
            [StatefulSets(), ReplicaSets(), Deployments(), Jobs(), NodeLifecycle(times)],
            times,
        )
        self.scheduler = Program("scheduler", [Scheduler()], times)
        self.kubelets = Program("kubelets", [NodeStatus(), Kubelets(self.settings, self.images)], times)
        self.parts = (self.controller_manager, self.scheduler, self.kubelets, self.lws)

    def join(self, server: Server) -> None:
        """Run as parts of a server, on its loop. The manager's webhooks answer only while it runs."""
        webhooks, states = server.webhooks, server.parts.states

        def serves() -> bool:
            return self.lws.alive and states().get(self.lws.name) == "running"

        webhooks.behind = serves
        server.store.writes.changers.append(PodWebhook(lambda: webhooks.answer).change)
        for part in self.parts:
            server.parts.add(part)


def inhabit(emulator: Emulator, settings: Settings | None = None) -> Cluster:
    """Let a started emulator be a whole cluster; returns what is to be disturbed (see Cluster)."""
    cluster = Cluster(settings)
    emulator.call(lambda: cluster.join(emulator.api))
    return cluster
