"""`make demo` as people run it: ready, an upgrade to the end, and nothing left whichever way it ends."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from deploy.demo.client import answers
from deploy.demo.folder import ROOT
from deploy.demo.walk import Walk, as_shell, pick

pytestmark = [pytest.mark.rig, pytest.mark.timeout(400)]

FIRST_IMAGE = "vllm/vllm-openai:v0.31.0"


class RunningDemo:
    """One launcher process with everything below it."""

    def __init__(self, log: Path, port: int) -> None:
        self._log = log
        command = [sys.executable, "-m", "deploy.demo", "--port", str(port)]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def output(self) -> str:
        """What it has printed."""
        return self._log.read_text(errors="replace")

    def wait_ready(self) -> None:
        """Until it says so."""
        until(
            "the demo is ready",
            lambda: "Lockstep is ready: " in self.output() or self.process.poll() is not None,
            120,
        )
        assert self.process.poll() is None, self.output()

    def facts(self) -> dict[str, Any]:
        """Address and people, from the file that the demo names."""
        found = re.search(r"deploy\.demo\.walk (\S+)", self.output())
        assert found
        facts: dict[str, Any] = json.loads(Path(found.group(1)).read_text())
        return facts

    def family(self) -> list[psutil.Process]:
        """Every process below the launcher now."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def end(self, number: signal.Signals) -> int:
        """Send a signal and wait for the end."""
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def running_demo(log: Path, port: int = 0) -> Iterator[RunningDemo]:
    """A ready demo; killed at the end if it still runs."""
    demo = RunningDemo(log, port)
    try:
        demo.wait_ready()
        yield demo
    finally:
        if demo.process.poll() is None:
            demo.process.kill()
            demo.process.wait()


def until(what: str, look: Callable[[], object], seconds: float) -> None:
    """Wait for a condition."""
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.1)


def alive(family: list[psutil.Process]) -> list[str]:
    """Those of the family that still run."""
    left = []
    for each in family:
        try:
            if each.is_running() and each.status() != psutil.STATUS_ZOMBIE:
                left.append(f"{each.pid} {' '.join(each.cmdline())}")
        except psutil.NoSuchProcess:
            continue
    return left


def test_an_upgrade_from_draft_to_end_and_nothing_left_after_ctrl_c(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with running_demo(tmp_path / "out", port) as demo:
            facts = demo.facts()
            assert facts["address"] != f"http://127.0.0.1:{port}"
            told: list[str] = []
            assert Walk(facts, told.append).go(FIRST_IMAGE) == "succeeded", told
            if shutil.which("curl"):
                assert as_shell(facts) in demo.output()
                shell = subprocess.run(
                    ["bash", "-c", as_shell(facts)], capture_output=True, text=True, timeout=180, cwd=tmp_path
                )
                assert shell.stdout.split() == ["settled", "succeeded"], shell.stderr + shell.stdout
            family = demo.family()
            assert len(family) > 10
            assert demo.end(signal.SIGINT) == 0, demo.output()
    assert not alive(family)
    assert not answers(facts["address"] + "/healthz")
    assert not Path(facts["kubeconfig"]).exists()


def test_a_killed_demo_leaves_nothing_and_a_part_that_dies_ends_the_next_one_by_name(tmp_path: Path) -> None:
    with running_demo(tmp_path / "first") as demo:
        family = demo.family()
        demo.end(signal.SIGKILL)
        until("everything ends with the launcher", lambda: not alive(family), 30)
    with running_demo(tmp_path / "second") as demo:
        family = demo.family()
        watcher = next(each for each in family if "workers.watch" in each.cmdline())
        watcher.kill()
        assert demo.process.wait(60) == 1
        assert "watcher: ended by itself" in demo.output()
        log = re.search(r"last lines of (\S+) ---", demo.output())
        assert log is None or Path(log.group(1)).is_file()
    assert not alive(family)


def test_the_shell_picks_what_the_script_picks() -> None:
    facts = {
        "address": "a",
        "people": {name: {"name": name, "token": "t", "password": "p"} for name in ("olga", "ana", "ben")},
        "workload": 1,
        "new_image": "i",
    }
    shell = as_shell(facts).split("\nkey()")[0]
    document = {"results": [{"id": 4, "state": "open"}, {"id": 5, "state": "stale"}], "note": "it's"}
    for path in ("results.0.id", "results.state", "results.state=open.id", "results.state=none.id", "note"):
        command = ["bash", "-c", f"{shell}\npick {path}"]
        done = subprocess.run(
            command, input=json.dumps(document), capture_output=True, text=True, timeout=20, check=True
        )
        assert done.stdout.split("\n")[:-1] == ([str(each) for each in pick(document, path)] or [""])
