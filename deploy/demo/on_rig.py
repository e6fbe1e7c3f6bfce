"""The demo on the rig: a real control plane, one served model, an upgrade to be walked by hand."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

from deploy.demo import seed, welcome
from deploy.demo.folder import Folder
from deploy.demo.path import PROBE_HEADER, ServedPath, router_program
from deploy.demo.processes import PartFailed, Product
from deploy.demo.starting import part, rig_log
from deploy.demo.target import install_target
from deploy.rig.build import build
from deploy.rig.rig import Rig
from deploy.rig.workloads import make_namespace


class RigGround:
    """See the module; methods as launcher.Ground says."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._probes = folder.data / "probes"
        self._rig: Rig | None = None
        self._story: seed.Story | None = None
        self.settings = {"LOCKSTEP_PROBE_CREDENTIALS": str(self._probes), "LOCKSTEP_PATHS_EVERY": "2"}

    @property
    def rig(self) -> Rig:
        """The rig, once `begin` was called."""
        assert self._rig is not None
        return self._rig

    @property
    def kubeconfig(self) -> Path:
        """Lockstep's own."""
        return self.rig.kubeconfig("lockstep")

    @property
    def _facts(self) -> Path:
        return self._folder.data / "facts.json"

    def begin(self, stack: ExitStack) -> None:
        """Build the programs of the control plane where they are not there, and start it."""
        with part("rig programs", self._folder):
            build(lambda line: print(f"  {line}", flush=True), extra=("path-crds",))
        with part("rig", self._folder):
            self._rig = stack.enter_context(
                Rig(folder=self._folder.data / "rig", programs=[router_program()], path_crds=True)
            )
        with part("target manifests", self._folder):
            install_target(self._rig.apply)

    def plant(self, product: Product, stack: ExitStack) -> None:
        """One model, five people."""
        path = ServedPath(self.rig, seed.NAMESPACE, model=seed.MODEL)
        self._probes.mkdir(mode=0o700, exist_ok=True)
        credential = {"urls": [path.probe_url], "headers": {PROBE_HEADER: path.secret}}
        (self._probes / seed.CREDENTIAL).write_text(json.dumps(credential))
        with part("people, cluster, a served model", self._folder):
            make_namespace(self.rig.client(), seed.NAMESPACE)
            self._story = seed.plant(product, self.rig, stack.enter_context(path))
        self._facts.touch(mode=0o600)
        self._facts.write_text(json.dumps(self._story.facts()))

    def welcome(self) -> str:
        """Address, people, an upgrade as curl commands."""
        assert self._story is not None
        return welcome.of_the_rig(self._story, logs=self._folder.logs, facts=self._facts)

    def go_on(self, stack: ExitStack) -> None:
        """Nothing."""

    def check(self) -> None:
        """The rig's own parts."""
        if lost := self.rig.gone():
            log = rig_log(self._folder, lost)
            raise PartFailed(f"rig: {lost}", "ended by itself", log, self.rig.log(lost))
