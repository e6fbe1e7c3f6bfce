"""An emulator with everything that lives on it, and with programs in place of containers: the face of the rig.

The programs of pods are run by the rig's own runner (deploy/rig/runner): it is a client of an API server, whichever.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from deploy.demo.emulator.controllers.cluster import Cluster, inhabit
from deploy.demo.emulator.controllers.settings import Settings
from deploy.demo.emulator.emulator import Emulator
from deploy.rig.identities import IDENTITIES, Identity
from deploy.rig.parts import Keeper
from deploy.rig.programs import ROOT, PodProgram, RunnerConfig, log_tail
from deploy.rig.slots import Slot, take_slot

Doc = dict[str, Any]
_RUNNER = "runner"
_MARK = ".lockstep-emulated-rig"


class EmulatedRig(Emulator):
    """``with EmulatedRig() as rig:`` where a Rig would be asked for. ``cluster`` is what can be disturbed in process.

    ``programs`` what runs in place of the containers of some images · ``settings`` times and versions (its addresses
    and programs are filled in here) · all others as for Emulator.
    """

    cluster: Cluster

    def __init__(
        self,
        *,
        programs: Sequence[PodProgram] = (),
        settings: Settings | None = None,
        identities: Sequence[Identity] = (),
        **options: Any,
    ) -> None:
        self._settings = settings or Settings()
        self._programs = tuple(programs)
        self._all_identities = (*IDENTITIES, *identities)
        self._slot: Slot | None = None
        self._keeper: Keeper | None = None
        self._wanted: list[str] = []
        super().__init__(identities=identities, newer_sets=self._settings.slices, logs=self._text, **options)

    # --- life

    def start(self) -> EmulatedRig:
        """Start it; returns when a set would be admitted. Raises RigUnavailable when no addresses are left."""
        self._slot = take_slot()
        try:
            super().start()
            for name in ("logs", "programs"):
                shutil.rmtree(self.dir / name, ignore_errors=True)
            (self.dir / "logs").mkdir()
            self._keeper = Keeper(logs=self.dir / "logs", remove=None, hold=[self._slot.lock])
            images = tuple(program.image for program in self._programs)
            settings = replace(self._settings, pod_cidr=self._slot.pod_cidr, programs=images)
            self.cluster = inhabit(self, settings)
            if self._programs:
                self._start_runner()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the programs, then the cluster; safe to call twice."""
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None
        super().stop()
        if self._slot is not None:
            self._slot.release()
            self._slot = None

    def __enter__(self) -> EmulatedRig:
        return self if self._keeper is not None else self.start()

    # --- what it is

    @property
    def pod_cidr(self) -> str:
        """The loopback range from which pods get addresses."""
        assert self._slot is not None
        return self._slot.pod_cidr

    def pids(self) -> dict[str, int]:
        """Process ids of the programs by name, the keeper's included."""
        keeper = self._kept()
        return {"keeper": keeper.pid, **keeper.pids()}

    def gone(self) -> str | None:
        """The name of a part or program that should run but has ended, or None."""
        running = self._kept().pids()
        return next((name for name in self._wanted if name not in running), None) or super().gone()

    def log(self, part: str, lines: int = 40) -> str:
        """The tail of the log of a part of the cluster, or of a program."""
        own = next((each for each in self.cluster.parts if each.name == part), None)
        if own is not None:
            return self.call(lambda: own.log(lines))
        return self._kept().tail(part, lines)

    def program_log(self, pod: Doc, container: str | None = None) -> str:
        """The last 64 kB that the program of a pod (the object as read) has written, over all its starts."""
        return log_tail(self.dir / "programs", pod, container)

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
        """Start a local program that ends with the emulator; see Rig.start_program."""
        if name in self._wanted:
            raise KeyError(f"{name} runs already")
        pid = self._launch(name, argv, env)
        if until_ready is not None:
            try:
                self._kept().wait_for(name, "its readiness", until_ready, limit_s)
            except BaseException:
                self.stop_part(name)
                raise
        return pid

    # --- faults

    def stop_part(self, part: str) -> None:
        """End a part of the cluster, or a program."""
        if part in self._wanted:
            self._wanted.remove(part)
            self._kept().stop(part)
        else:
            super().stop_part(part)

    def start_part(self, part: str) -> None:
        """Start a part again; a new runner starts its pods' programs again."""
        if part == _RUNNER:
            self._start_runner()
        else:
            super().start_part(part)

    def stop_lws(self) -> None:
        """The manager is gone, so its webhooks are too: every write to a set fails."""
        self.stop_part(self.cluster.lws.name)

    def start_lws(self) -> None:
        """Start the manager again."""
        self.start_part(self.cluster.lws.name)

    # --- inside

    def _start_runner(self) -> None:
        assert self._slot is not None
        files = {each.name: str(self.kubeconfig(each.name)) for each in self._all_identities}
        config = RunnerConfig(
            kubeconfig=files[_RUNNER],
            folder=str(self.dir / "programs"),
            programs=self._programs,
            kubeconfigs=files,
            accounts={each.user: each.name for each in self._all_identities},
            ports=self._slot.program_ports,
        )
        path = config.write(self.dir / "runner.json")
        self._launch(_RUNNER, [sys.executable, "-m", "deploy.rig.runner", path])

    def _launch(self, name: str, argv: Sequence[str | Path], env: Mapping[str, str] | None = None) -> int:
        ours = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        pid = self._kept().start(name, argv, {**ours, **(env or {})})
        self._wanted.append(name)
        return pid

    def _text(self, pod: Doc, container: str, previous: bool) -> str:
        return log_tail(self.dir / "programs", pod, container or None)

    def _kept(self) -> Keeper:
        if self._keeper is None:
            raise RuntimeError("this emulator does not run")
        return self._keeper
