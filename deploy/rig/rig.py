"""One running rig: started, used and stopped from Python."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from deploy.rig import lws, path_crds, prometheus, stages
from deploy.rig.api import Api, until
from deploy.rig.build import PATH_CRDS, Built, binary, build
from deploy.rig.furnishing import (
    answers,
    cluster_admin,
    furnish,
    listens,
    nodes_ready,
    says_ok,
    webhooks_answer,
)
from deploy.rig.identities import IDENTITIES, Identity, issue
from deploy.rig.nodes import NodePool
from deploy.rig.parts import Keeper, RigFailed
from deploy.rig.plane import RUNNER, STOP_ORDER, Plane, server_url
from deploy.rig.programs import ROOT, PodProgram, RunnerConfig, log_tail
from deploy.rig.slots import Slot, take_slot

Doc = dict[str, Any]
_MARK = ".lockstep-rig"
_START_LIMIT_S = 90.0


class Rig:
    """A control plane of its own: ``with Rig() as rig: rig.apply(...)``.

    ``nodes`` pools of machines · ``lws_source`` another LeaderWorkerSet manager than the chosen one ·
    ``run_lws`` False leaves the manager and its webhooks out · ``identities`` users besides the usual ones ·
    ``programs`` what runs in place of the containers of some images · ``path_crds`` True serves the kinds of the
    request path (pools, routes, objectives, scalers) ·
    ``folder`` where files go (kept after the stop; without it a temporary folder that goes with the rig).
    """

    def __init__(
        self,
        *,
        nodes: NodePool | Sequence[NodePool] | None = None,
        lws_source: lws.LwsSource | None = None,
        run_lws: bool = True,
        identities: Sequence[Identity] = (),
        programs: Sequence[PodProgram] = (),
        path_crds: bool = False,
        folder: Path | None = None,
    ) -> None:
        self._pools = (
            [NodePool()] if nodes is None else [nodes] if isinstance(nodes, NodePool) else list(nodes)
        )
        self._lws_source = lws_source
        self._run_lws = run_lws
        self._identities = (*IDENTITIES, *identities)
        self._programs = tuple(programs)
        self._path_crds = path_crds
        self._folder = folder
        self._clients: dict[str, Api] = {}
        self._keeper: Keeper | None = None
        self._plane: Plane | None = None
        self._slot: Slot | None = None
        self._wanted: list[str] = []
        self._beside: list[str] = []

    # --- life

    def start(self) -> Rig:
        """Start everything; returns when nodes are schedulable and a set would be admitted.

        Raises RigUnavailable when it cannot be built here, RigFailed (with the part and its log) otherwise.
        """
        built = build(extra=[PATH_CRDS] if self._path_crds else [])
        source = self._lws_source or lws.chosen(built)
        folder = self._make_folder()
        self._slot = take_slot()
        try:
            credentials = issue(folder / "trust", self._identities, server_url(self._slot))
            self._plane = Plane(built, folder, credentials, self._slot)
            remove = folder if self._folder is None else None
            self._keeper = Keeper(logs=folder / "logs", remove=remove, hold=[self._slot.lock])
            self._start_plane(built)
            self._furnish(source, built)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End every program, clients first and etcd last; safe to call twice."""
        if self._keeper is not None:
            self._keeper.close([*reversed(self._beside), *STOP_ORDER])
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
        self._kept().wait_for("lws", "webhooks answer", lambda: listens(plane.webhook_port), _START_LIMIT_S)

    def break_webhooks(self) -> None:
        """The manager runs, but the API server cannot reach its webhooks; returns when it has taken that up."""
        self._point_webhooks(self._running().closed_port)
        until("the API server misses the webhooks", lambda: not webhooks_answer(self.client()))

    def mend_webhooks(self) -> None:
        """Undo :meth:`break_webhooks`; returns when the API server reaches them again."""
        self._point_webhooks(self._running().webhook_port)
        if "lws" in self._wanted:
            until("the API server reaches the webhooks", lambda: webhooks_answer(self.client()))

    def stop_part(self, part: str) -> None:
        """End one program: scheduler, controller-manager, kwok, ... ."""
        if part in self._wanted:
            self._wanted.remove(part)
        self._kept().stop(part)

    def start_part(self, part: str) -> None:
        """Start a program again; KWOK acts only when the node leases of the one before have ended (40 s).

        A new runner (the part that plays pods whose image is a program) starts their programs again.
        """
        plane = self._running()
        lines = {
            "controller-manager": plane.controller_manager,
            "scheduler": plane.scheduler,
            "kwok": plane.kwok,
            RUNNER: self._runner,
        }
        self._launch(part, lines[part](), env={"PYTHONPATH": str(ROOT)} if part == RUNNER else None)

    def pause(self, part: str) -> None:
        """SIGSTOP a part."""
        self._kept().signal(part, signal.SIGSTOP)

    def resume(self, part: str) -> None:
        """SIGCONT a paused part."""
        self._kept().signal(part, signal.SIGCONT)

    # --- programs beside it

    def start_program(
        self,
        name: str,
        argv: Sequence[str | Path],
        env: Mapping[str, str] | None = None,
        *,
        until_ready: Callable[[], bool] | None = None,
        limit_s: float = 30.0,
    ) -> int:
        """Start a local program that ends with the rig (or by :meth:`stop_part`); returns its process id.

        Its log is ``log(name)``; this checkout is on its PYTHONPATH, and of the caller's environment it has PATH
        alone, beside ``env``. With ``until_ready`` this returns when that is true. RigFailed (with the log's end)
        when it ends first or ``limit_s`` pass, then nothing of it runs; KeyError for a name that is taken.
        """
        if name in self._wanted or name in STOP_ORDER:
            raise KeyError(f"{name} runs already")
        pid = self._launch(name, argv, env={"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **(env or {})})
        if until_ready is not None:
            try:
                self._kept().wait_for(name, "its readiness", until_ready, limit_s)
            except BaseException:
                self.stop_part(name)
                raise
        return pid

    def start_prometheus(self, scrape_configs: Sequence[Doc] | None = None) -> str:
        """Start Prometheus and return its URL; ``stop_part("prometheus")`` ends it.

        ``scrape_configs`` in place of :func:`deploy.rig.prometheus.default_scrape_configs`; service discovery in
        them that names no API server finds this one. Builds Prometheus where it is not built (a minute or two).
        """
        plane, port = self._running(), self._running().slot.port(5)
        user = next(each.user for each in self._identities if each.name == "prometheus")
        self.apply(prometheus.rights(user))
        configs = prometheus.default_scrape_configs() if scrape_configs is None else scrape_configs
        config = prometheus.configuration(configs, self.kubeconfig("prometheus"))
        argv = prometheus.command(binary("prometheus"), plane.folder / "prometheus", config, port)
        url = f"http://127.0.0.1:{port}"
        self.start_program("prometheus", argv, until_ready=lambda: says_ok(f"{url}/-/ready"), limit_s=60.0)
        return url

    def program_log(self, pod: Doc, container: str | None = None) -> str:
        """The last 64 kB that the program of a pod (the object as read) has written, over all its starts."""
        return log_tail(self._running().folder / "programs", pod, container)

    def _runner(self) -> list[str | Path]:
        plane = self._running()
        files = {each.name: str(self.kubeconfig(each.name)) for each in self._identities}
        accounts = {each.user: each.name for each in self._identities}
        config = RunnerConfig(
            files[RUNNER],
            str(plane.folder / "programs"),
            self._programs,
            files,
            accounts,
            plane.slot.program_ports,
        )
        return [sys.executable, "-m", "deploy.rig.runner", config.write(plane.folder / "runner.json")]

    # --- how it starts

    def _make_folder(self) -> Path:
        if self._folder is None:
            folder = Path(tempfile.mkdtemp(prefix="lockstep-rig-"))
        else:
            folder = self._folder.resolve()
            if folder.exists() and any(folder.iterdir()) and not (folder / _MARK).exists():
                raise RigFailed("folder", f"{folder} has other files in it")
            for old in ("etcd", "logs", "trust", "programs", "prometheus"):
                shutil.rmtree(folder / old, ignore_errors=True)
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        (folder / _MARK).touch()
        return folder

    def _start_plane(self, built: Built) -> None:
        plane, keeper = self._running(), self._kept()
        images = [program.image for program in self._programs]
        stages.write_stages(plane.folder / "stages.yaml", built.kwok_stages, images)
        self._launch("etcd", plane.etcd())
        keeper.wait_for("etcd", "client port", lambda: listens(plane.slot.port(1)), _START_LIMIT_S)
        self.start_apiserver()
        for part in ("scheduler", "kwok"):
            self.start_part(part)

    def _launch(self, part: str, argv: Sequence[str | Path], env: Mapping[str, str] | None = None) -> int:
        pid = self._kept().start(part, argv, env)
        self._wanted.append(part)
        if part not in STOP_ORDER:
            self._beside.append(part)
        return pid

    def _wait_apiserver(self) -> None:
        self._kept().wait_for(
            "apiserver", "/readyz", lambda: answers(self.client(), "/readyz"), _START_LIMIT_S
        )

    def _furnish(self, source: lws.LwsSource, built: Built) -> None:
        """Nodes, rights, kinds, and the LeaderWorkerSet installation."""
        self._source = source
        kinds = source.crds() + (path_crds.documents(built.path_crds) if built.path_crds else [])
        docs = [node for pool in self._pools for node in pool.documents()]
        docs += [cluster_admin(identity) for identity in self._identities if identity.cluster_admin]
        namespace, *rights = lws.account()
        furnish(self.client(), kinds, namespace, [*docs, *rights, source.role()], limit_s=_START_LIMIT_S)
        # Not earlier: the garbage collector looks for new kinds only every 30 s, and would leave orphans until then.
        self.start_part("controller-manager")
        if self._programs:
            self.start_part(RUNNER)
        if self._run_lws:
            self.start_lws()
            self._point_webhooks(self._running().webhook_port)
        until("nodes ready and schedulable", lambda: nodes_ready(self.client()), limit_s=_START_LIMIT_S)

    def _point_webhooks(self, port: int) -> None:
        authority = self._running().credentials.ca.read_bytes()
        self.apply(self._source.webhooks(port=port, authority=authority))

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
