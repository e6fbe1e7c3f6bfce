"""A demo's folders: new each time, cleaned after whoever died, never read again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from deploy.demo.folder import ROOT, take_folder

TAKE_AND_DIE = """
import os, sys, pathlib
from deploy.demo.folder import take_folder
with take_folder(pathlib.Path(sys.argv[1])) as folder:
    (folder.data / "postgres").mkdir()
    (folder.data / "postgres.log").write_text("last words")
    print(folder.data, flush=True)
    os._exit(9)
"""


def test_two_demos_side_by_side_have_folders_of_their_own(tmp_path: Path) -> None:
    with take_folder(tmp_path) as one, take_folder(tmp_path) as two:
        assert one.logs != two.logs
        assert one.data != two.data
        assert one.data.is_dir()
    assert not one.data.exists()
    assert one.logs.is_dir()


def test_what_a_killed_demo_left_is_dropped_and_its_logs_are_kept(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", TAKE_AND_DIE, str(tmp_path)]
    died = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30)
    assert died.returncode == 9, died.stderr
    data = Path(died.stdout.strip())
    assert data.is_dir()
    with take_folder(tmp_path) as folder:
        assert not data.exists()
        assert folder.data != data
        assert (tmp_path / "1" / "logs" / "postgres.log").read_text() == "last words"


def test_a_state_folder_of_another_version_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "7").write_text("a file where a folder is expected")
    (tmp_path / "8").mkdir()
    (tmp_path / "8" / "data").write_text("/")  # a note that names what is not ours
    (tmp_path / "8" / "lock").touch()
    (tmp_path / "notes.txt").touch()
    with take_folder(tmp_path) as folder:
        assert folder.logs == tmp_path / "9" / "logs"
    assert Path("/").is_dir()


def test_logs_of_the_newest_three_stay(tmp_path: Path) -> None:
    for _ in range(5):
        with take_folder(tmp_path):
            pass
    with take_folder(tmp_path):
        assert sorted(path.name for path in tmp_path.iterdir()) == ["3", "4", "5", "6"]
