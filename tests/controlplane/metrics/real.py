"""A real Prometheus for tests: samples with chosen times are written into it, or it scrapes what a test serves."""

from __future__ import annotations

import json
import math
import socket
import struct
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

STALE = struct.unpack(">d", bytes.fromhex("7ff0000000000002"))[0]  # "this series has ended"
Point = tuple[float, float]  # unix seconds, value


class RealPrometheus:
    """One process in a folder of its own, listening on loopback. `scrape_configs` as in its configuration."""

    def __init__(self, program: Path, folder: Path, scrape_configs: Sequence[Mapping[str, Any]] = ()) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        config = {
            "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"},
            "storage": {"tsdb": {"out_of_order_time_window": "1d"}},
            "scrape_configs": list(scrape_configs),
        }
        path = folder / "prometheus.yaml"
        path.write_text(yaml.safe_dump(config))
        self.log = folder / "prometheus.log"
        self.process = subprocess.Popen(
            [
                program,
                f"--config.file={path}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--web.enable-remote-write-receiver",
                "--log.level=warn",
            ],
            stdout=subprocess.DEVNULL,
            stderr=self.log.open("w"),
        )

    def __enter__(self) -> RealPrometheus:
        end = time.monotonic() + 60
        while not self._ready():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end, "Prometheus did not become ready within 60 s"
            time.sleep(0.05)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        self.process.wait(20)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def write(self, series: Iterable[tuple[Mapping[str, str], Sequence[Point]]]) -> None:
        """Store samples: labels (with `__name__`) and points, oldest first."""
        body = b"".join(_field(1, _time_series(labels, points)) for labels, points in series)
        request = urllib.request.Request(
            f"{self.url}/api/v1/write",
            data=_snappy(body),
            headers={
                "Content-Type": "application/x-protobuf",
                "Content-Encoding": "snappy",
                "X-Prometheus-Remote-Write-Version": "0.1.0",
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=20):
                pass
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from error

    def targets(self) -> list[dict[str, Any]]:
        """Its active targets, as its API tells them."""
        with urllib.request.urlopen(f"{self.url}/api/v1/targets?state=active", timeout=5) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["activeTargets"]
        return found


def _time_series(labels: Mapping[str, str], points: Sequence[Point]) -> bytes:
    named = b"".join(
        _field(1, _field(1, name.encode()) + _field(2, value.encode()))
        for name, value in sorted(labels.items())
    )
    samples = b"".join(
        _field(2, b"\x09" + _double(value) + b"\x10" + _varint(round(at * 1000))) for at, value in points
    )
    return named + samples


def _double(value: float) -> bytes:
    # A stale marker is one certain NaN, which arithmetic would not keep.
    return bytes.fromhex("020000000000f07f") if value is STALE else struct.pack("<d", value)


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _snappy(content: bytes) -> bytes:
    """Snappy's block format with nothing compressed: literals of at most 64 KiB."""
    parts = [_varint(len(content))]
    for start in range(0, len(content), 1 << 16):
        part = content[start : start + (1 << 16)]
        parts += [bytes([61 << 2]), (len(part) - 1).to_bytes(2, "little"), part]
    return b"".join(parts)


def cumulative(bounds: Sequence[float], counts: Sequence[float]) -> dict[str, float]:
    """Counts per bucket (one more than bounds: beyond the last) as cumulative counts by `le`."""
    found, sum_so_far = {}, 0.0
    for bound, count in zip([*bounds, math.inf], counts, strict=True):
        sum_so_far += count
        found["+Inf" if bound == math.inf else repr(float(bound))] = sum_so_far
    return found
