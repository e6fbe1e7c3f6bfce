"""One container's life: its program is started, asked whether it is ready, and started again after its end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import urllib3

from deploy.rig.api import ApiError
from deploy.rig.programs import PodProgram
from deploy.rig.runner import probes, spec, status, volumes
from deploy.rig.runner.forward import forward
from deploy.rig.runner.host import Host

Doc = dict[str, Any]
_CHILD = Path(__file__).with_name("child.py")
LONGEST_BACK_OFF_S = 10.0
# A program that ran this long begins again with the shortest back-off.
_STEADY_S = 20.0
_AGAIN_S = 0.5
_LOG_LIMIT = 4 << 20
_LOG_KEPT = 64 * 1024
_KILLED = 137


@dataclass(frozen=True)
class _Launch:
    argv: list[str]
    env: dict[str, str]
    forwards: dict[int, int]  # pod port -> local port


def now() -> str:
    """The time as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class ContainerRun:
    """A container whose image is a program; ``changed`` is called whenever ``view`` says something new.

    ``stored`` is what the pod's status says of the container already: after a runner that was killed, a program
    that ran then is gone now.
    """

    def __init__(
        self,
        host: Host,
        pod: Callable[[], Doc],
        container: Doc,
        changed: Callable[[], None],
        stored: Doc,
    ) -> None:
        program = host.program(container)
        assert program is not None
        self._host, self._pod, self._container, self._changed = host, pod, container, changed
        self._program: PodProgram = program
        self._policy: str = pod()["spec"].get("restartPolicy", "Always")
        self._child: subprocess.Popen[bytes] | None = None
        self._began = now()
        self._stopping = False
        self.view = status.View.of(stored)
        self.task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start the life; :attr:`task` ends when the program will not be started again."""
        self.task = asyncio.create_task(self._live())

    async def stop(self, deadline: Callable[[], float]) -> None:
        """SIGTERM, and SIGKILL when the monotonic clock passes ``deadline()``; returns when the program is gone."""
        assert self.task is not None
        self._stopping = True
        if self._child is None:
            self.task.cancel()
        else:
            _send(self._child.pid, signal.SIGTERM)
        while not self.task.done():
            if time.monotonic() >= deadline():
                self.kill()
            await asyncio.wait({self.task}, timeout=0.1)

    def kill(self) -> None:
        """SIGKILL to the program and all that it started; no return to life."""
        self._stopping = True
        if self._child is not None:
            _send_group(self._child.pid, signal.SIGKILL)
        elif self.task is not None:
            self.task.cancel()

    def complete(self) -> None:
        """Say that the container ended well (one that the rig only shows)."""
        self._say(state=status.terminated(0, self._began, now()), ready=False, started=False)

    # --- the life

    async def _live(self) -> None:
        if "terminated" in self.view.state and not self._again(self._last_code()):
            return
        if "running" in self.view.state:  # its runner was killed, and the program with it
            self._end(_KILLED)
            if not self._again(_KILLED):
                return
        if "terminated" in self.view.state or "CrashLoopBackOff" in str(self.view.state):
            self.view.restarts += 1
        back_off = 0.0
        while True:
            began = time.monotonic()
            code = await self._run_once()
            self._end(code)
            if self._stopping or not self._again(code):
                return
            back_off = (
                1.0 if time.monotonic() - began > _STEADY_S else min(LONGEST_BACK_OFF_S, back_off * 2 or 1.0)
            )
            metadata = self._pod()["metadata"]
            text = (
                f"back-off {back_off:.0f}s restarting failed container={self.view.name} "
                f"pod={metadata['name']}_{metadata['namespace']}"
            )
            self._say(
                last=self.view.state,
                state=status.waiting("CrashLoopBackOff", text),
                ready=False,
                started=False,
            )
            await asyncio.sleep(back_off)
            self.view.restarts += 1

    def _again(self, code: int) -> bool:
        return self._policy == "Always" or (self._policy == "OnFailure" and code != 0)

    def _last_code(self) -> int:
        return int(self.view.state["terminated"]["exitCode"])

    def _end(self, code: int) -> None:
        self._say(state=status.terminated(code, self._began, now()), ready=False, started=False)

    def _say(self, **said: Any) -> None:
        for name, value in said.items():
            setattr(self.view, name, value)
        self._changed()

    # --- one start

    async def _run_once(self) -> int:
        """From the start of the program to its end; returns its exit code."""
        with self._host.ports(list(self._program.port_flags.values())) as local:
            launch = await self._prepare(local)
            child = self._spawn(launch)
            self._child = child
            self._began = now()
            last = self.view.state if "terminated" in self.view.state else self.view.last
            self._say(state=status.running(self._began), started=True, ready=False, last=last)
            work = [self._probe(launch), *(self._lead(*pair) for pair in launch.forwards.items())]
            beside = [asyncio.create_task(self._beside(each)) for each in work]
            try:
                await _exited(child)
            finally:
                for task in beside:
                    task.cancel()
                _send_group(child.pid, signal.SIGKILL)  # whatever it left behind
                self._child = None
            return status.exit_code(child.wait())

    async def _prepare(self, local: dict[str, int]) -> _Launch:
        """Files, environment and arguments, as soon as everything that they need is there."""
        while True:
            try:
                sources = await self._host.sources(self._pod())
                return self._launch(sources, local)
            except volumes.NotYet as wanting:
                self._wait_for(wanting.reason, wanting.message)
            except (ApiError, urllib3.exceptions.HTTPError) as problem:
                self._wait_for("ContainerCreating", str(problem))
            await asyncio.sleep(_AGAIN_S)

    def _wait_for(self, reason: str, message: str) -> None:
        state = status.waiting(reason, message)
        if self.view.state != state:
            last = self.view.state if "terminated" in self.view.state else self.view.last
            self._say(state=state, last=last)

    def _launch(self, sources: volumes.Sources, local: dict[str, int]) -> _Launch:
        pod, folder = self._pod(), self._host.folder(self._pod())
        write_volumes(pod, folder, sources)
        mounts = volumes.mounts_of(pod, self._container, folder)
        values = spec.environment(pod, self._container, sources)
        args = [volumes.rewritten(each, mounts) for each in spec.arguments(self._container, values)]
        ports = spec.pod_ports(args, self._program.port_flags)
        env = {
            **self._host.base_environment(pod),
            "KUBECONFIG": self._host.kubeconfig(self._program, pod),
            **self._program.env,
            **{name: volumes.rewritten(value, mounts) for name, value in values.items()},
        }
        return _Launch(
            argv=[*self._program.argv, *spec.with_ports(args, local)],
            env=env,
            forwards={port: local[flag] for flag, port in ports.items()},
        )

    def _spawn(self, launch: _Launch) -> subprocess.Popen[bytes]:
        folder = self._host.folder(self._pod())
        path = folder / f"{self.view.name}.log"
        trim(path)
        with path.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", str(_CHILD), str(os.getpid()), *launch.argv],
                env=launch.env,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def _probe(self, launch: _Launch) -> None:
        probe = probes.readiness(self._container, self._program.ready)
        if probe is None:
            self._say(ready=True)
            return
        pod_ip = self._pod()["status"]["podIP"]

        def address(port: int) -> tuple[str, int]:
            led = launch.forwards.get(port)
            return ("127.0.0.1", led) if led else (pod_ip, port)

        good = bad = 0
        while True:
            if await probes.passes(probe, address):
                good, bad = good + 1, 0
            else:
                good, bad = 0, bad + 1
            if not self.view.ready and good >= probe.successes:
                self._say(ready=True)
            elif self.view.ready and bad >= probe.failures:
                self._say(ready=False)
            await asyncio.sleep(probe.period_s if self.view.ready else min(probe.period_s, 0.2))

    async def _lead(self, port: int, local: int) -> None:
        await forward(self._pod()["status"]["podIP"], port, local)

    async def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Work beside a program: what goes wrong with it stands in the program's log."""
        try:
            await work
        except Exception as problem:
            path = self._host.folder(self._pod()) / f"{self.view.name}.log"
            with path.open("a") as log:
                log.write(f"rig: {type(problem).__name__}: {problem}\n")


def write_volumes(pod: Doc, folder: Path, sources: volumes.Sources) -> None:
    """Make the pod's volumes what their sources say; NotYet where one is missing that is not optional."""
    folder.mkdir(parents=True, exist_ok=True)
    for volume in pod["spec"].get("volumes", []):
        if volumes.parts_of(volume):
            volumes.write_files(folder / "volumes" / volume["name"], volumes.files_of(volume, sources))
        elif "emptyDir" in volume:
            (folder / "volumes" / volume["name"]).mkdir(parents=True, exist_ok=True)


def trim(path: Path) -> None:
    """Keep a log small: its end moves aside, and it begins again (its writers append)."""
    if path.exists() and path.stat().st_size > _LOG_LIMIT:
        with path.open("rb") as log:
            log.seek(-_LOG_KEPT, os.SEEK_END)
            path.with_name(path.name + ".1").write_bytes(log.read())
        os.truncate(path, 0)


async def _exited(child: subprocess.Popen[bytes]) -> None:
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    descriptor = os.pidfd_open(child.pid)
    loop.add_reader(descriptor, gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _send_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        pass
