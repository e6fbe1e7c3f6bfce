"""A whole emulated cluster in the test's own event loop: store, admission, controllers; no HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import yaml

from deploy.demo.emulator.accounts import Accounts
from deploy.demo.emulator.controllers.cluster import Cluster
from deploy.demo.emulator.controllers.names import GROUP_SETS, PODS, SETS
from deploy.demo.emulator.controllers.revision import set_revision
from deploy.demo.emulator.controllers.settings import Settings, Times
from deploy.demo.emulator.furnishing import furnish
from deploy.demo.emulator.garbage import Collector
from deploy.demo.emulator.namespaces import Namespaces
from deploy.demo.emulator.server import Server
from deploy.demo.emulator.store import Acting, Store, User, service_account
from deploy.rig import workloads
from deploy.rig.identities import IDENTITIES
from deploy.rig.nodes import NodePool

Doc = dict[str, Any]
T = TypeVar("T")
TARGET = Path(__file__).parents[4] / "deploy" / "target"
SPACE, SET = "serving", "model"
ROLES = ("prefill", "decode")
# Only ever reached by a failure: a whole rollout takes a quarter of a second of computing.
LIMIT_S = 30.0
ADMIN = User("admin", ("system:masters",))
# Rows as old and new groups per role.
State = tuple[tuple[int, ...], tuple[int, ...]]


def quick(**times: float) -> Times:
    """Times in which nothing waits for long."""
    usual = {"requeue_s": 0.02, "restart_s": 0.02, "late_s": 0.05, "period_s": 0.05, "node_grace_s": 0.02}
    return Times(**{**usual, "eviction_s": 0.02, **times})


class World:
    """What a test looks at and pulls."""

    def __init__(self, store: Store, server: Server, cluster: Cluster) -> None:
        self.store = store
        self.server = server
        self.cluster = cluster
        self.admin: Acting = store.acting_as(ADMIN)

    async def until(self, what: str, look: Callable[[], T], limit_s: float = LIMIT_S) -> T:
        """The first true result, looked for after every change."""
        loop = asyncio.get_running_loop()
        end = loop.time() + limit_s
        with self.store.subscribe() as changes:
            while True:
                if seen := look():
                    return seen
                if loop.time() > end:
                    raise AssertionError(f"not seen: {what}; now {self.sizes()}, {self.states()}")
                await changes.next(0.02)

    async def quiet(self, for_s: float = 0.15) -> None:
        """Return when no object has changed for a while, however busy the machine is."""
        with self.store.subscribe() as changes:
            while True:
                if await changes.next(for_s):
                    continue
                for _ in range(20):
                    await asyncio.sleep(0.001)
                if not changes.drain():
                    return

    # --- sets

    def make_set(self, roles: Sequence[Doc] | None = None, **options: Any) -> Doc:
        return self.admin.create(workloads.disaggregated_set(SET, SPACE, roles, **options))

    def write_roles(self, roles: Sequence[Doc], **spec: Any) -> Doc:
        """Replace the roles of the set."""
        return self.admin.patch(SETS, SPACE, SET, {"spec": {"roles": list(roles), **spec}})

    def touch(self, note: str = "again") -> None:
        self.admin.patch(SETS, SPACE, SET, {"metadata": {"annotations": {"touched": note}}})

    def children(self) -> list[Doc]:
        return self.store.list(GROUP_SETS, SPACE, labels=f"{workloads.NAME_LABEL}={SET}")

    def sizes(self, *, slice_key: str | None = None) -> dict[tuple[str, str], int]:
        """(revision, role) -> groups asked for."""
        found: dict[tuple[str, str], int] = {}
        for child in self.children():
            labels = child["metadata"]["labels"]
            if slice_key in (None, labels.get(workloads.SLICE_LABEL, "0")):
                key = (labels[workloads.REVISION_LABEL], labels[workloads.ROLE_LABEL])
                found[key] = found.get(key, 0) + child["spec"]["replicas"]
        return found

    def row(self, old: str, new: str, roles: Sequence[str] = ROLES) -> State:
        """The counts of two revisions as a row of the planner."""
        sizes = self.sizes()
        return (
            tuple(sizes.get((old, role), 0) for role in roles),
            tuple(sizes.get((new, role), 0) for role in roles),
        )

    def revisions(self) -> set[str]:
        return {label for label, _ in self.sizes()}

    def settled(self) -> str:
        """The one revision when everything is as the spec says; "" otherwise."""
        stored = self.store.get(SETS, SPACE, SET)
        slices = stored["spec"].get("slices", 1)
        wanted = {role["name"]: role["spec"]["replicas"] * slices for role in stored["spec"]["roles"]}
        labels = self.revisions()
        if len(labels) != 1:
            return ""
        label = labels.pop()
        if label != set_revision(stored["spec"]["roles"]):
            return ""
        if {role: count for (_, role), count in self.sizes().items()} != wanted:
            return ""
        for child in self.children():
            size, status = child["spec"]["replicas"], child.get("status", {})
            if status.get("readyReplicas", 0) != size or status.get("replicas", 0) != size:
                return ""
        return label

    async def settles(self, limit_s: float = LIMIT_S) -> str:
        return await self.until("the set is settled", self.settled, limit_s)

    # --- pods

    def pods(self, selector: str = "") -> list[Doc]:
        return self.store.list(PODS, SPACE, labels=selector)

    def states(self) -> dict[str, str]:
        """Pods by name: phase and readiness."""
        return {
            pod["metadata"]["name"]: (
                "ready" if workloads.is_ready(pod) else pod.get("status", {}).get("phase", "?")
            )
            for pod in self.pods()
        }

    # --- the hold

    def install_hold(self) -> None:
        """The shipped admission policies."""
        for name in ("namespace.yaml", "rollout-hold.yaml", "hold-guard.yaml"):
            for doc in yaml.safe_load_all((TARGET / name).read_text()):
                if doc:
                    self.admin.create(doc)

    def hold(self, data: Mapping[str, str], fence: int) -> None:
        """Write the parameter whole, as Lockstep."""
        lockstep = self.store.acting_as(service_account("lockstep", "lockstep"))
        name = f"hold-{SPACE}.{SET}"
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "lockstep", "labels": {"lockstep.dev/hold": "true"}},
            "data": {"namespace": SPACE, "set": SET, "operation": "U-7", "fence": str(fence), **data},
        }
        if self.store.find("configmaps", "lockstep", name) is None:
            lockstep.create(body)
        else:
            lockstep.replace(body)


@asynccontextmanager
async def world(
    *,
    nodes: NodePool | None = None,
    slices: bool = False,
    times: Times | None = None,
    seed: int = 1,
    **settings: Any,
) -> AsyncIterator[World]:
    """A running cluster with a namespace for sets."""
    store = Store(seed=seed, newer_sets=slices)
    server = Server(store, Accounts())
    furnish(store, IDENTITIES, [nodes or NodePool(count=4)])
    cluster = Cluster(Settings(times=times or quick(), slices=slices, **settings))
    server.parts.add(Collector())
    server.parts.add(Namespaces())
    cluster.join(server)
    made = World(store, server, cluster)
    made.admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    await made.until("a service account", lambda: store.find("serviceaccounts", SPACE, "default"))
    await made.until("the manager", lambda: cluster.lws.alive)
    try:
        yield made
    finally:
        await server.parts.stop_all()


def images(tag: str, prefill: int = 4, decode: int = 2, **options: Any) -> list[Doc]:
    """The two roles with another image."""
    image = f"registry.example/engine:{tag}"
    return [
        workloads.role("prefill", prefill, image=image, **options),
        workloads.role("decode", decode, image=image, **options),
    ]


class Rows:
    """Every state that the sets went through, in order, equal neighbours once: read from the changes themselves."""

    def __init__(self, made: World, *labels: str, roles: Sequence[str] = ROLES) -> None:
        self._world, self._labels, self._roles = made, labels, roles
        self._sizes = dict(made.sizes())
        self.seen = [self._state()]

    def _state(self) -> tuple[tuple[int, ...], ...]:
        return tuple(
            tuple(self._sizes.get((label, role), 0) for role in self._roles) for label in self._labels
        )

    async def follow(
        self, until: Callable[[], object], limit_s: float = LIMIT_S
    ) -> list[tuple[tuple[int, ...], ...]]:
        """Look at each change of a LeaderWorkerSet until something is true."""
        loop = asyncio.get_running_loop()
        end = loop.time() + limit_s
        with self._world.store.subscribe(GROUP_SETS) as changes:
            while not until():
                if loop.time() > end:
                    raise AssertionError(f"too late; seen {self.seen}")
                for change in await changes.next(0.05):
                    labels = change.new["metadata"]["labels"]
                    key = (labels[workloads.REVISION_LABEL], labels[workloads.ROLE_LABEL])
                    self._sizes[key] = 0 if change.type == "DELETED" else change.new["spec"]["replicas"]
                    if self._state() != self.seen[-1]:
                        self.seen.append(self._state())
        return self.seen
