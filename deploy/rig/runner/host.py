"""What the pods of one runner share: the API server, the programs by image, local ports."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from deploy.rig import keeper
from deploy.rig.api import Api, ApiError
from deploy.rig.programs import ROOT, PodProgram, RunnerConfig, pod_folder, repository
from deploy.rig.runner.spec import references
from deploy.rig.runner.volumes import data_of
from deploy.rig.slots import is_free

Doc = dict[str, Any]
T = TypeVar("T")
# In the environment of every program, with the runner's folder as its value: how what is left over is found.
MARK = "LOCKSTEP_RIG_PROGRAMS"
_PLURALS = {"ConfigMap": "configmaps", "Secret": "secrets"}


class Host:
    """The node that all programs share."""

    def __init__(self, config: RunnerConfig) -> None:
        self.config = config
        self.api = Api(Path(config.kubeconfig))
        self._programs = {program.image: program for program in config.programs}
        self._threads = ThreadPoolExecutor(8)
        self._taken: set[int] = set()

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """A blocking call, outside the loop."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    def program(self, container: Doc) -> PodProgram | None:
        """The program of a container's image."""
        return self._programs.get(repository(container["image"]))

    def folder(self, pod: Doc) -> Path:
        """Where the files and logs of a pod lie."""
        return pod_folder(Path(self.config.folder), pod)

    def kubeconfig(self, program: PodProgram, pod: Doc) -> str:
        """The file that KUBECONFIG names: see PodProgram.identity."""
        account = pod["spec"].get("serviceAccountName", "default")
        user = f"system:serviceaccount:{pod['metadata']['namespace']}:{account}"
        name = program.identity or self.config.accounts.get(user, "admin")
        return self.config.kubeconfigs[name]

    def base_environment(self, pod: Doc) -> dict[str, str]:
        """What every program of a pod finds in its environment beside what its container says."""
        metadata = pod["metadata"]
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.folder(pod)),
            "HOSTNAME": metadata["name"],
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "POD_NAME": metadata["name"],
            "POD_IP": pod["status"]["podIP"],
            "NAMESPACE": metadata["namespace"],
            MARK: self.config.folder,
            keeper.MARK: os.environ.get(keeper.MARK, ""),
        }

    async def sources(self, pod: Doc) -> dict[tuple[str, str], dict[str, bytes] | None]:
        """The ConfigMaps and Secrets that a pod names, as they are now."""
        wanted = sorted(references(pod))
        namespace = pod["metadata"]["namespace"]
        found = await asyncio.gather(*(self.call(self._read, namespace, *each) for each in wanted))
        return dict(zip(wanted, found, strict=True))

    def _read(self, namespace: str, kind: str, name: str) -> dict[str, bytes] | None:
        try:
            stored = self.api.get(f"/api/v1/namespaces/{namespace}/{_PLURALS[kind]}/{name}")
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return data_of({**stored, "kind": kind})

    @contextmanager
    def ports(self, flags: Sequence[str]) -> Iterator[dict[str, int]]:
        """A free local port for each flag, ours until the block ends."""
        given: dict[str, int] = {}
        try:
            for flag in flags:
                given[flag] = self._free_port()
            yield given
        finally:
            self._taken -= set(given.values())

    def _free_port(self) -> int:
        first, last = self.config.ports
        for port in range(first, last + 1):
            if port not in self._taken and is_free(port, "0.0.0.0"):
                self._taken.add(port)
                return port
        raise OSError(f"no free port from {first} to {last}")
