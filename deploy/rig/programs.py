"""Programs that the rig runs in place of containers: which image means which program, and how it is ready.

A pod with a container of a program's image is no play of KWOK: the runner (runner/) starts the program with the
container's arguments, environment and files, and the pod's status says what became of it. README.md has the rules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from deploy.rig.build import binary

ROOT = Path(__file__).parents[2]
EPP_IMAGE = "registry.k8s.io/gateway-api-inference-extension/epp"


@dataclass(frozen=True)
class PodProgram:
    """What runs for the containers of one image.

    ``image`` without tag and digest · ``argv`` the program, to which the container's arguments are added ·
    ``port_flags`` for a program that cannot bind to its pod's address alone: pod port -> flag; the program gets a
    free local port by that flag, and the pod's port leads there. The container's own value of the flag is the
    pod port, where it has one · ``ready`` counts where the container has no readinessProbe:
    "tcp" (its first containerPort accepts; without a port it is ready when it runs), "tcp:PORT",
    "http:/path:PORT", "grpc-health:PORT" or "grpc-health:PORT:SERVICE" · ``identity`` whose kubeconfig is
    KUBECONFIG (without one: the pod's service account where the rig has it, else admin) · ``env`` added to it.
    """

    image: str
    argv: Sequence[str]
    port_flags: Mapping[int, str] = field(default_factory=dict)
    ready: str = "tcp"
    identity: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)


def epp(image: str = EPP_IMAGE, *, identity: str | None = None) -> PodProgram:
    """The Gateway API Inference Extension's own EPP 1.5, built now if it is not there.

    It binds to all addresses, so its three ports are led to. Raises RigUnavailable when it cannot be built.
    """
    flags = {9002: "--grpc-port", 9003: "--grpc-health-port", 9090: "--metrics-port"}
    return PodProgram(image, (str(binary("epp")),), flags, "grpc-health:9003", identity)


def repository(image: str) -> str:
    """An image reference without its tag and digest."""
    return re.sub(r"(:[^/:@]+)?(@.*)?$", "", image)


@dataclass(frozen=True)
class RunnerConfig:
    """What the runner process is told, as a JSON file.

    ``kubeconfig`` the runner's own · ``folder`` one subfolder per pod · ``kubeconfigs`` by identity ·
    ``accounts`` user name -> identity · ``ports`` first and last of the local ports that it may give away.
    """

    kubeconfig: str
    folder: str
    programs: tuple[PodProgram, ...]
    kubeconfigs: Mapping[str, str]
    accounts: Mapping[str, str]
    ports: tuple[int, int]

    def write(self, path: Path) -> Path:
        """Write the file."""
        path.write_text(json.dumps(asdict(self), default=str))
        return path

    @classmethod
    def read(cls, path: Path) -> RunnerConfig:
        """Read it back."""
        stored: dict[str, Any] = json.loads(path.read_text())
        programs = []
        for each in stored.pop("programs"):
            flags = {int(port): flag for port, flag in each.pop("port_flags").items()}
            programs.append(PodProgram(**each, port_flags=flags))
        first, last = stored.pop("ports")
        return cls(**stored, programs=tuple(programs), ports=(first, last))


def pod_folder(folder: Path, pod: Mapping[str, Any]) -> Path:
    """Where the files and logs of one pod lie."""
    metadata = pod["metadata"]
    return folder / f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"


def log_tail(folder: Path, pod: Mapping[str, Any], container: str | None, size: int = 64 * 1024) -> str:
    """The last ``size`` bytes that a pod's program wrote, over all its starts; "" when there is none."""
    names = [each["name"] for each in pod["spec"]["containers"]] if container is None else [container]
    kept = b""
    for name in names:
        for path in (pod_folder(folder, pod) / f"{name}.log.1", pod_folder(folder, pod) / f"{name}.log"):
            if path.exists():
                kept = (kept + path.read_bytes()[-size:])[-size:]
    return kept.decode(errors="replace")
