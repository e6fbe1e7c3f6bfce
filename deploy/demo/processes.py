"""The processes of the product, as a production start would run them, on free ports of this machine."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deploy.demo.client import answers
from deploy.demo.folder import ROOT
from deploy.rig.parts import Keeper
from deploy.rig.slots import is_free
from deploy.services import free_port

# Clients of the database and the broker end before them, and the web process last: it may still answer.
STOP_ORDER = ("watcher", "beat", "worker", "web")
_READY_LIMIT_S = 60.0


class PartFailed(RuntimeError):
    """A part did not start or ended by itself; the text names it and its log and shows the end of the log."""

    def __init__(self, part: str, problem: str, log: Path, tail: str = "") -> None:
        shown = f"\n--- last lines of {log} ---\n{tail.rstrip()}" if tail.strip() else f" (log: {log})"
        super().__init__(f"{part}: {problem}{shown}")
        self.part = part
        self.log = log


@dataclass
class Product:
    """Starts web, worker, beat and watcher under a keeper that ends them all when this process is gone."""

    logs: Path
    database_url: str
    broker_url: str
    kubeconfig: Path
    secret_key: str = field(default_factory=lambda: secrets.token_urlsafe(48))
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.keeper = Keeper(logs=self.logs, remove=None)
        self.port = 0
        self.started: set[str] = set()

    @property
    def address(self) -> str:
        """Where web answers."""
        return f"http://127.0.0.1:{self.port}"

    def environment(self, *, cluster: bool) -> dict[str, str]:
        """What a process of the product reads. Only workers and watchers get cluster credentials."""
        foreign = ("LOCKSTEP_", "DJANGO_", "DATABASE_URL")
        ours = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        chosen = {
            "DATABASE_URL": self.database_url,
            "LOCKSTEP_BROKER_URL": self.broker_url,
            "LOCKSTEP_SECRET_KEY": self.secret_key,
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
        }
        if cluster:
            chosen["LOCKSTEP_KUBECONFIG"] = str(self.kubeconfig)
        return {**ours, **chosen, **self.settings}

    def manage(self, *arguments: str, **more: str) -> str:
        """Run one command of manage.py to its end, `more` added to its environment, and return its output.

        Raises PartFailed when it fails.
        """
        log = self.logs / "manage.log"
        done = subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), *arguments],
            env={**self.environment(cluster=False), **more},
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
        )
        with log.open("a") as kept:
            kept.write(f"$ manage.py {arguments[0]}\n{done.stderr}")  # tokens go to stdout, not to a log
        if done.returncode:
            tail = "\n".join(done.stderr.splitlines()[-15:])
            raise PartFailed(f"manage.py {arguments[0]}", f"ended with status {done.returncode}", log, tail)
        return done.stdout

    def start_web(self, wanted_port: int) -> None:
        """Start web on the wanted port, or on a free one where it is taken (or 0), and wait until it answers."""
        for attempt in range(3):
            wanted = wanted_port if attempt == 0 else 0
            self.port = wanted if wanted and is_free(wanted) else free_port()
            options = ["--host", "127.0.0.1", "--port", str(self.port), "--timeout-graceful-shutdown", "3"]
            self._start("web", ["-m", "uvicorn", "controlplane.asgi:application", *options], cluster=False)
            try:
                self.wait_until("web", "/healthz", lambda: answers(f"{self.address}/healthz"))
                return
            except PartFailed:
                if attempt == 2 or self.keeper.runs("web"):
                    raise

    def start_rest(self) -> None:
        """Start worker, beat and watcher."""
        celery = ["-m", "celery", "-A", "workers.app"]
        self._start(
            "worker", [*celery, "worker", "--concurrency", "2", "--without-gossip", "--without-mingle"]
        )
        self._start("beat", [*celery, "beat", "--pidfile="], cluster=False)
        self._start("watcher", ["-m", "workers.watch"])

    def wait_until(self, part: str, what: str, look: Callable[[], bool]) -> None:
        """Wait until `look()` holds; PartFailed for a part that ends first, or for `part` after a minute."""
        end = time.monotonic() + _READY_LIMIT_S
        while not look():
            if gone := self.gone():
                raise self.failed(gone, f"ended while waiting for {what}")
            if time.monotonic() > end:
                raise self.failed(part, f"not seen within {_READY_LIMIT_S:.0f} s: {what}")
            time.sleep(0.1)

    def gone(self) -> str:
        """The name of a started part that has ended by itself, or nothing."""
        return next((part for part in self.started if not self.keeper.runs(part)), "")

    def failed(self, part: str, problem: str) -> PartFailed:
        """The failure of one part, with the end of its log."""
        return PartFailed(part, problem, self.logs / f"{part}.log", self.keeper.tail(part))

    def stop(self) -> None:
        """End every process, whatever state it is in."""
        self.keeper.close(STOP_ORDER)

    def _start(self, part: str, arguments: Sequence[str], *, cluster: bool = True) -> None:
        self.keeper.start(part, [sys.executable, *arguments], env=self.environment(cluster=cluster))
        self.started.add(part)
