"""`make demo REAL=1` as people run it: ready, an upgrade to the end, and nothing left whichever way it ends."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from deploy.demo.client import answers
from deploy.demo.walk import Walk, as_shell, pick
from tests.demo.running import alive, running_demo, until

pytestmark = [pytest.mark.rig, pytest.mark.timeout(400)]

FIRST_IMAGE = "vllm/vllm-openai:v0.31.0"


def test_an_upgrade_from_draft_to_end_and_nothing_left_after_ctrl_c(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with running_demo(tmp_path / "out", "--real", port=port) as demo:
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
    with running_demo(tmp_path / "first", "--real") as demo:
        family = demo.family()
        demo.end(signal.SIGKILL)
        until("everything ends with the launcher", lambda: not alive(family), 30)
    with running_demo(tmp_path / "second", "--real") as demo:
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
