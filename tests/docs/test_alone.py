"""A chaos test runs beside nothing, on a small suite of its own with two workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUITE = """
import json, os, pathlib, time
import pytest

BOOK = pathlib.Path(__file__).with_name("book")


def work(name):
    begun = time.time()
    time.sleep(0.15)
    with BOOK.open("a") as book:
        book.write(json.dumps([name, os.environ["PYTEST_XDIST_WORKER"], begun, time.time()]) + "\\n")


@pytest.mark.parametrize("number", range(6))
def test_ordinary(number):
    work("ordinary")


@pytest.mark.chaos
@pytest.mark.parametrize("number", range(3))
def test_chaos(number):
    work("chaos")
"""


def test_chaos_tests_run_beside_nothing_and_others_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "test_second.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    chaos: c\n")
    (tmp_path / "conftest.py").write_text("pytest_plugins = ('tests.alone',)\n")
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "TESTS_"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:django", "-n", "2", "--dist", "loadfile", str(tmp_path)],
        cwd=tmp_path,
        env={**clean, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in (tmp_path / "book").read_text().splitlines()]
    assert len(rows) == 18
    pairs = [(one, two) for one in rows for two in rows if one[1] < two[1]]
    beside = {(one[0], two[0]) for one, two in pairs if one[2] < two[3] and two[2] < one[3]}
    assert beside == {("ordinary", "ordinary")}
