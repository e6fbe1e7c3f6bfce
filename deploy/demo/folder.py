"""Where one demo keeps its files. Every start gets new folders: nothing of an older version is ever read."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEMOS = ROOT / ".lockstep" / "demo"
_DATA_PREFIX = "lockstep-demo-"
_KEPT = 3


@dataclass(frozen=True)
class Folder:
    """`logs` stay for a while after the end; `data` goes with the demo.

    Data lies in the temporary folder, where PostgreSQL's account can reach it.
    """

    logs: Path
    data: Path


@contextmanager
def take_folder(parent: Path = DEMOS) -> Iterator[Folder]:
    """New folders, locked while this process lives.

    Logs stay until three newer demos have started. What demos have left whose process is gone (killed, or the
    machine went down) is dropped first.
    """
    parent.mkdir(parents=True, exist_ok=True)
    clean(parent)
    home, lock = _make(parent)
    data = Path(tempfile.mkdtemp(prefix=_DATA_PREFIX))
    data.chmod(0o711)
    (home / "data").write_text(str(data))
    try:
        yield Folder(logs=home / "logs", data=data)
    finally:
        _drop_data(home)
        os.close(lock)


def running(parent: Path = DEMOS) -> list[Path]:
    """The data folders of demos that run now, the newest first."""
    homes = sorted(parent.iterdir() if parent.is_dir() else (), key=_number, reverse=True)
    notes = [home / "data" for home in homes if _number(home) and home.is_dir() and not _has_ended(home)]
    return [Path(note.read_text()) for note in notes if note.is_file()]


def clean(parent: Path) -> None:
    """Drop the data of demos that run no more, and their logs except the newest three."""
    ended = [home for home in sorted(parent.iterdir(), key=_number) if _has_ended(home)]
    for home in ended:
        _drop_data(home)
    for home in ended[:-_KEPT]:
        shutil.rmtree(home, ignore_errors=True)


def _make(parent: Path) -> tuple[Path, int]:
    number = max((_number(home) for home in parent.iterdir()), default=0) + 1
    while True:
        home = parent / str(number)
        try:
            home.mkdir()
        except FileExistsError:  # another demo starts now
            number += 1
            continue
        lock = os.open(home / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        (home / "logs").mkdir()
        return home, lock


def _number(home: Path) -> int:
    return int(home.name) if home.name.isdecimal() else 0


def _has_ended(home: Path) -> bool:
    if not _number(home):
        return False
    try:
        lock = os.open(home / "lock", os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


def _drop_data(home: Path) -> None:
    """Remove the data folder that `home`/data names, if it is one of ours; its logs go to `home`/logs."""
    note = home / "data"
    if not note.is_file():
        return
    data = Path(note.read_text())
    if data.name.startswith(_DATA_PREFIX) and data.is_dir() and data.stat().st_uid == os.getuid():
        for log in data.rglob("*.log"):
            kept = home / "logs" / log.relative_to(data)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(log, kept)
        shutil.rmtree(data, ignore_errors=True)
    note.unlink()
