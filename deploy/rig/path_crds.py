"""Custom resource definitions of the request path: pools, routes, objectives, scalers.

They are copied from Go modules that are only downloaded, never built: KEDA alone would bring every cloud's client
library. Each is pinned by version and by the checksum that Go's checksum database has for it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

Doc = dict[str, Any]

# (module@version, its checksum, files)
_SOURCES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "sigs.k8s.io/gateway-api-inference-extension@v1.5.0",
        "h1:w9Awt60cmI1vM7Y6N81h8wDCBP0WkmxpdI7GKY0v070=",
        (
            "config/crd/bases/inference.networking.k8s.io_inferencepools.yaml",
            "config/crd/bases/inference.networking.x-k8s.io_inferenceobjectives.yaml",
            "config/crd/bases/inference.networking.x-k8s.io_inferencemodelrewrites.yaml",
        ),
    ),
    (
        "sigs.k8s.io/gateway-api@v1.5.1",
        "h1:RqVRIlkhLhUO8wOHKTLnTJA6o/1un4po4/6M1nRzdd0=",
        (
            "config/crd/standard/gateway.networking.k8s.io_gatewayclasses.yaml",
            "config/crd/standard/gateway.networking.k8s.io_gateways.yaml",
            "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",
        ),
    ),
    (
        "github.com/kedacore/keda/v2@v2.21.0",
        "h1:R6z2HZvstK4RLUMxroNACzBj74xGxt3kG59b5Xc+Xps=",
        ("config/crd/bases/keda.sh_scaledobjects.yaml",),
    ),
    (
        "knative.dev/serving@v0.51.0",
        "h1:yN2Q7eYqJgoPfZkATjoBZyGbZ2P1Qhns9HIMU4mF+to=",
        ("config/core/300-resources/podautoscaler.yaml",),
    ),
)
_OWN = Path(__file__).with_name("llm_d_objectives.yaml")


def folder(root: Path) -> Path:
    """The cache folder below ``root``, named by what lies in it."""
    return root / f"path-crds-{hashlib.sha256(repr(_SOURCES).encode()).hexdigest()[:16]}"


def there(root: Path) -> bool:
    """Whether everything has been fetched."""
    return (folder(root) / "done").exists()


def fetch(root: Path, download: Callable[[str, str], Path]) -> None:
    """Copy the definitions; ``download(module@version, checksum)`` returns the folder of a module."""
    target = folder(root)
    target.mkdir(parents=True, exist_ok=True)
    for module, checksum, files in _SOURCES:
        source = download(module, checksum)
        for name in files:
            # Parsed once here instead of at every start.
            parsed = yaml.safe_load((source / name).read_text())
            (target / Path(name).with_suffix(".json").name).write_text(json.dumps(parsed))
    (target / "done").touch()


def documents(fetched: Path) -> list[Doc]:
    """All definitions: those that were fetched, and the llm-d router's own objectives (llm_d_objectives.yaml)."""
    found: list[Doc] = [json.loads(path.read_text()) for path in sorted(fetched.glob("*.json"))]
    return [*found, yaml.safe_load(_OWN.read_text())]
