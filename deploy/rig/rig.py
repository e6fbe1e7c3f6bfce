"""One running rig: started, used and stopped from Python."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import urllib3

from deploy.rig import lws, stages, workloads
from deploy.rig.api import Api, ApiError, until
from deploy.rig.build import Built, build
from deploy.rig.identities import IDENTITIES, Identity, issue
from deploy.rig.nodes import NodePool
from deploy.rig.parts import Keeper, RigFailed
from deploy.rig.plane import STOP_ORDER, Plane, server_url
from deploy.rig.slots import Slot, take_slot

Doc = dict[str, Any]
_MARK = ".lockstep-rig"
_START_LIMIT_S = 90.0


class Rig:
    """A control plane of its own: ``with Rig() as rig: rig.apply(...)``.

    ``nodes`` pools of machines · ``lws_source`` another LeaderWorkerSet manager than the chosen one ·
    ``run_lws`` False leaves the manager and its webhooks out · ``identities`` users besides the usual ones ·
    ``folder`` where files go (kept after the stop; without it a temporary folder that goes with the rig).
    """

    def __init__(
        self,
        *,
        nodes: NodePool | Sequence[NodePool] | None = None,
        lws_source: lws.LwsSource | None = None,
        run_lws: bool = True,
        identities: Sequence[Identity] = (),
        folder: Path | None = None,
    ) -> None:
        self._pools = (
            [NodePool()] if nodes is None else [nodes] if isinstance(nodes, NodePool) else list(nodes)
        )
        self._lws_source = lws_source
        self._run_lws = run_lws
        self._identities = (*IDENTITIES, *identities)
        self._folder = folder
        self._clients: dict[str, Api] = {}
        self._keeper: Keeper | None = None
        self._plane: Plane | None = None
        self._slot: Slot | None = None
        self._wanted: list[str] = []

    # --- life

    def start(self) -> Rig:
        """Start everything; returns when nodes are schedulable and a set would be admitted.

        Raises RigUnavailable when it cannot be built here, RigFailed (with the part and its log) otherwise.
        """
        built = build()
        source = self._lws_source or lws.chosen(built)
        folder = self._make_folder()
        self._slot = take_slot()
        try:
            credentials = issue(folder / "trust", self._identities, server_url(self._slot))
            self._plane = Plane(built, folder, credentials, self._slot)
            remove = folder if self._folder is None else None
            self._keeper = Keeper(logs=folder / "logs", remove=remove, hold=[self._slot.lock])
            self._start_plane(built)
            self._furnish(source)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End every program, clients first and etcd last; safe to call twice."""
        if self._keeper is not None:
            self._keeper.close(STOP_ORDER)
            self._keeper = None
        if self._slot is not None:
            self._slot.release()
            self._slot = None
        self._clients.clear()

    def __enter__(self) -> Rig:
        return self if self._keeper is not None else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- what it is

    @property
    def dir(self) -> Path:
        """The folder of this rig: logs/, trust/kubeconfig/."""
        return self._running().folder

    @property
    def server(self) -> str:
        """The API server's URL."""
        return self._running().server

    @property
    def pod_cidr(self) -> str:
        """The loopback range from which this rig's pods get addresses."""
        return self._running().slot.pod_cidr

    @property
    def lws_has_slices(self) -> bool:
        """Whether the served DisaggregatedSet knows ``spec.slices`` (newer managers; 0.9.0 does not)."""
        crd = self.client().get(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/disaggregatedsets.disaggregatedset.x-k8s.io"
        )
        spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        return "slices" in spec["properties"]

    def kubeconfig(self, name: str = "admin") -> Path:
        """The kubeconfig file of an identity (see identities.py); KeyError for an unknown one."""
        if name not in {identity.name for identity in self._identities}:
            raise KeyError(name)
        return self._running().credentials.kubeconfig(name)

    def client(self, name: str = "admin") -> Api:
        """A client as one of the identities."""
        if name not in self._clients:
            self._clients[name] = Api(self.kubeconfig(name))
        return self._clients[name]

    def apply(self, docs: str | Doc | Iterable[Doc]) -> list[Doc]:
        """Server-side apply as admin: YAML text, one document or several."""
        return self.client().apply(docs)

    def pids(self) -> dict[str, int]:
        """Process ids of the running parts by name, the keeper's included."""
        keeper = self._kept()
        return {"keeper": keeper.pid, **keeper.pids()}

    def gone(self) -> str | None:
        """The name of a part that should run but has ended by itself, or None."""
        running = self._kept().pids()
        return next((part for part in self._wanted if part not in running), None)

    def log(self, part: str, lines: int = 40) -> str:
        """The tail of a part's log: etcd, apiserver, controller-manager, scheduler, kwok, lws."""
        return self._kept().tail(part, lines)

    # --- faults

    def restart_apiserver(self) -> None:
        """Stop the API server and start it again on the same port; returns when it is ready."""
        self.stop_apiserver()
        self.start_apiserver()

    def stop_apiserver(self) -> None:
        """The API server is gone; etcd and the clients stay."""
        self.stop_part("apiserver")

    def start_apiserver(self) -> None:
        """Start the API server and wait until it is ready."""
        self._launch("apiserver", self._running().apiserver())
        self._wait_apiserver()

    def stop_lws(self) -> None:
        """The manager is gone, so its webhooks are too: every write to a set fails."""
        self.stop_part("lws")

    def start_lws(self) -> None:
        """Start the manager and wait until its webhooks answer."""
        plane = self._running()
        config = plane.folder / "lws.yaml"
        config.write_text(
            json.dumps(
                lws.manager_config(port=plane.webhook_port, certificates=plane.credentials.webhook_folder)
            )
        )
        kubeconfig = plane.credentials.kubeconfig("lws")
        manager = self._source.manager
        self._launch("lws", [manager, f"--config={config}", f"--kubeconfig={kubeconfig}"])
        self._kept().wait_for("lws", "webhooks answer", lambda: _listens(plane.webhook_port), _START_LIMIT_S)

    def break_webhooks(self) -> None:
        """The manager runs, but the API server cannot reach its webhooks; returns when it has taken that up."""
        self._point_webhooks(self._running().closed_port)
        until("the API server misses the webhooks", lambda: not self._webhooks_answer())

    def mend_webhooks(self) -> None:
        """Undo :meth:`break_webhooks`; returns when the API server reaches them again."""
        self._point_webhooks(self._running().webhook_port)
        if "lws" in self._wanted:
            until("the API server reaches the webhooks", self._webhooks_answer)

    def stop_part(self, part: str) -> None:
        """End one program: scheduler, controller-manager, kwok, ... ."""
        if part in self._wanted:
            self._wanted.remove(part)
        self._kept().stop(part)

    def start_part(self, part: str) -> None:
        """Start a program again; KWOK acts only when the node leases of the one before have ended (40 s)."""
        plane = self._running()
        lines = {
            "controller-manager": plane.controller_manager,
            "scheduler": plane.scheduler,
            "kwok": plane.kwok,
        }
        self._launch(part, lines[part]())

    def pause(self, part: str) -> None:
        """SIGSTOP a part."""
        self._kept().signal(part, signal.SIGSTOP)

    def resume(self, part: str) -> None:
        """SIGCONT a paused part."""
        self._kept().signal(part, signal.SIGCONT)

    # --- how it starts

    def _make_folder(self) -> Path:
        if self._folder is None:
            folder = Path(tempfile.mkdtemp(prefix="lockstep-rig-"))
        else:
            folder = self._folder.resolve()
            if folder.exists() and any(folder.iterdir()) and not (folder / _MARK).exists():
                raise RigFailed("folder", f"{folder} has other files in it")
            for old in ("etcd", "logs", "trust"):
                shutil.rmtree(folder / old, ignore_errors=True)
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        (folder / _MARK).touch()
        return folder

    def _start_plane(self, built: Built) -> None:
        plane, keeper = self._running(), self._kept()
        stages.write_stages(plane.folder / "stages.yaml", built.kwok_stages)
        self._launch("etcd", plane.etcd())
        keeper.wait_for("etcd", "client port", lambda: _listens(plane.slot.port(1)), _START_LIMIT_S)
        self.start_apiserver()
        for part in ("scheduler", "kwok"):
            self.start_part(part)

    def _launch(self, part: str, argv: Sequence[str | Path]) -> None:
        self._kept().start(part, argv)
        self._wanted.append(part)

    def _wait_apiserver(self) -> None:
        self._kept().wait_for(
            "apiserver", "/readyz", lambda: _answers(self.client(), "/readyz"), _START_LIMIT_S
        )

    def _furnish(self, source: lws.LwsSource) -> None:
        """Nodes, rights, and the LeaderWorkerSet installation."""
        self._source = source
        docs: list[Doc] = [node for pool in self._pools for node in pool.documents()]
        docs += [_cluster_admin(identity) for identity in self._identities if identity.cluster_admin]
        namespace, *rights = lws.account()
        docs += [*rights, source.role()]
        client = self.client()
        client.create(namespace)  # before what lies in it
        with ThreadPoolExecutor(8) as workers:
            crds = workers.map(client.apply, source.crds())
            list(workers.map(client.create, docs))
            names = [crd[0]["metadata"]["name"] for crd in crds]
        until(
            "CRDs established", lambda: all(self._established(name) for name in names), limit_s=_START_LIMIT_S
        )
        # Not earlier: the garbage collector looks for new kinds only every 30 s, and would leave orphans until then.
        self.start_part("controller-manager")
        if self._run_lws:
            self.start_lws()
            self._point_webhooks(self._running().webhook_port)
        until("nodes ready and schedulable", self._nodes_ready, limit_s=_START_LIMIT_S)

    def _established(self, name: str) -> bool:
        crd = self.client().get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
        conditions = crd.get("status", {}).get("conditions") or []
        return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

    def _nodes_ready(self) -> bool:
        nodes = self.client().items("/api/v1/nodes")
        taints = [taint["key"] for node in nodes for taint in node["spec"].get("taints", [])]
        return not any(key.startswith("node.kubernetes.io/") for key in taints)

    def _point_webhooks(self, port: int) -> None:
        authority = self._running().credentials.ca.read_bytes()
        self.apply(self._source.webhooks(port=port, authority=authority))

    def _webhooks_answer(self) -> bool:
        """Whether a write to a set gets past its webhook, by a dry run."""
        probe = workloads.disaggregated_set("webhook-probe", "default")
        try:
            self.client().request("POST", self.client().collection(probe), probe, query={"dryRun": "All"})
        except ApiError as error:
            if "failed calling webhook" in error.message:
                return False
            raise
        return True

    def _running(self) -> Plane:
        if self._plane is None:
            raise RuntimeError("this rig is not started")
        return self._plane

    def _kept(self) -> Keeper:
        if self._keeper is None:
            raise RuntimeError("this rig does not run")
        return self._keeper


def start_rig(**options: Any) -> Rig:
    """``Rig(**options).start()``."""
    return Rig(**options).start()


def _cluster_admin(identity: Identity) -> Doc:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"rig-{identity.name}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": identity.user}],
    }


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _answers(client: Api, path: str) -> bool:
    try:
        client.request("GET", path)
    except (ApiError, urllib3.exceptions.HTTPError):
        return False
    return True
