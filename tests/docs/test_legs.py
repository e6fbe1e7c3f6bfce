"""The table of legs, on a small suite of its own in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUITE = """
import pytest


@pytest.mark.rig
def test_on_the_rig():
    pass


@pytest.mark.rig
@pytest.mark.lws_main
def test_on_a_newer_manager():
    pass


def test_anywhere():
    pass
"""


def run(folder: Path, *, missing: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run SUITE with a rig that misses something ("" = nothing)."""
    (folder / "test_suite.py").write_text(SUITE)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    rig: r\n    lws_main: l\n")
    (folder / "conftest.py").write_text(
        "import deploy.rig.build\n"
        f"deploy.rig.build.available = lambda: ({not missing}, {missing!r})\n"
        "pytest_plugins = ('tests.legs',)\n"
    )
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("LOCKSTEP_", "PYTEST_"))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:django", "-p", "no:cacheprovider", str(folder)],
        cwd=folder,
        env={**clean, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def rows(output: str) -> dict[str, str]:
    """The table of legs by leg."""
    table = output[output.index("= legs =") :].splitlines()[2:-1]
    return {line.split()[0]: line for line in table}


def test_a_missing_rig_is_left_out_loudly_and_does_not_fail(tmp_path: Path) -> None:
    done = run(tmp_path, missing="Go is not on PATH")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "LEFT OUT: Go is not on PATH" in rows(done.stdout)["rig"]
    assert rows(done.stdout)["rig"].split()[1:3] == ["0", "2"]
    assert "1 passed, 2 skipped" in done.stdout.splitlines()[-1]


def test_a_required_rig_that_is_missing_fails_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, missing="Go is not on PATH", LOCKSTEP_REQUIRE_RIG="1")
    assert done.returncode == 1
    assert "REQUIRED BUT LEFT OUT: Go is not on PATH" in rows(done.stdout)["rig"]
    assert "1 passed, 1 skipped, 1 error" in done.stdout.splitlines()[-1]


def test_a_newer_manager_is_left_out_without_failing_a_required_rig(tmp_path: Path) -> None:
    done = run(tmp_path, missing="", LOCKSTEP_REQUIRE_RIG="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert rows(done.stdout)["rig"].split()[1:3] == ["1", "0"]
    assert "LOCKSTEP_LWS_BIN" in rows(done.stdout)["lws_main"]
    assert "2 passed, 1 skipped" in done.stdout.splitlines()[-1]


def test_a_test_of_a_required_rig_that_skips_itself_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_more.py").write_text(
        "import pytest\n\n@pytest.mark.rig\ndef test_more():\n    pytest.skip('did not start')\n"
    )
    done = run(tmp_path, missing="", LOCKSTEP_REQUIRE_RIG="1")
    assert done.returncode == 1
    assert "did not start" in done.stdout
    assert "1 failed, 2 passed, 1 skipped" in done.stdout.splitlines()[-1]


def test_a_path_that_is_no_program_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, missing="", LOCKSTEP_LWS_BIN=str(tmp_path / "nothing"))
    assert "is not a program" in rows(done.stdout)["lws_main"]
