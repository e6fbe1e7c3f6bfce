"""Which version an engine is, asked of the engine itself where workers reach it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from controlplane.paths.requests import Line

AT_ONCE = 8
TIMEOUT_S = 2.0


def read_versions(addresses: Mapping[str, str]) -> dict[str, str]:
    """Name → base address of an engine; name → what its `GET /version` says. Who does not answer is left out."""

    def ask(base: str) -> str:
        line = Line(base, timeout_s=TIMEOUT_S)
        try:
            return _version(line.text("/version"))
        finally:
            line.close()

    if not addresses:
        return {}
    with ThreadPoolExecutor(AT_ONCE) as workers:
        found = dict(zip(addresses, workers.map(ask, addresses.values()), strict=True))
    return {name: version for name, version in found.items() if version}


def _version(text: str) -> str:
    try:
        document = json.loads(text)
    except ValueError:
        return ""
    version = document.get("version") if isinstance(document, dict) else None
    return version[:60] if isinstance(version, str) else ""
