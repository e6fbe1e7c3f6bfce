"""The access log of the proxy: the same lines as Envoy's, one JSON object for each request."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from multidict import CIMultiDict

from deploy.demo.gateway import names


@dataclass
class Entry:
    """What is known of one request so far; headers are as they stand when the line is written."""

    listener: str
    method: str
    path: str
    headers: CIMultiDict[str]
    begun: float = field(default_factory=time.time)
    route: str = ""
    pool: str = ""
    engine: str = ""
    status: int = 0
    flags: str = ""
    details: str = ""
    bytes_in: int = 0
    bytes_out: int = 0
    answered: CIMultiDict[str] = field(default_factory=CIMultiDict)

    def line(self) -> dict[str, Any]:
        """The fields as Envoy writes them; what there was none of is null."""
        moment = datetime.fromtimestamp(self.begun, UTC)
        fields = {
            "listener": self.listener,
            "time": moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z",
            "request_id": self.headers.get("x-request-id"),
            "method": self.method,
            "path": self.path,
            "route": self.route,
            "pool": self.pool,
            "destination": self.headers.get(names.DESTINATION),
            "engine": self.engine,
            "prefiller": self.headers.get(names.PREFILLER),
            "revision_asked": self.headers.get(names.REVISION),
            "revision_served": self.answered.get(names.REVISION),
            "objective": self.headers.get(names.OBJECTIVE),
            "fairness": self.headers.get(names.FAIRNESS),
            "dropped_reason": self.answered.get(names.DROPPED_REASON),
            "flags": self.flags or "-",
            "details": self.details,
        }
        numbers = {
            "status": self.status,
            "duration_ms": round((time.time() - self.begun) * 1000),
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
        }
        return {name: value or None for name, value in fields.items()} | numbers


class AccessLog:
    """A file that lines are added to; without a path nothing is written."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: TextIO | None = None
        self.reopen()

    def write(self, entry: Entry) -> None:
        """Add one line."""
        if self._file is not None:
            self._file.write(json.dumps(entry.line()) + "\n")

    def reopen(self) -> None:
        """Go on in the file that has the path now, made anew where it was renamed."""
        self.close()
        if self._path is not None:
            self._file = self._path.open("a", buffering=1, encoding="utf-8", errors="backslashreplace")

    def close(self) -> None:
        """End writing."""
        if self._file is not None:
            self._file.close()
        self._file = None
