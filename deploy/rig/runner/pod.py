"""One pod's life on the runner: its containers, its files, its status, its end."""

from __future__ import annotations

import asyncio
import math
import shutil
import sys
import time
from typing import Any

import urllib3

from deploy.rig.api import STRATEGIC, ApiError
from deploy.rig.runner import status, volumes
from deploy.rig.runner.container import ContainerRun, now, trim, write_volumes
from deploy.rig.runner.host import Host

Doc = dict[str, Any]
# A kubelet takes up to a minute or two until a changed ConfigMap is in its pods' files.
REFRESH_S = 2.0
_AGAIN_S = 0.3


class PodRun:
    """A pod that was handed over to the runner; containers of other images are only shown as running."""

    def __init__(self, host: Host, pod: Doc) -> None:
        self._host = host
        self.pod = pod
        self._gone = False
        self._ended = pod["status"].get("phase") in ("Succeeded", "Failed")
        self._conditions: list[Doc] = pod["status"].get("conditions") or []
        self._deleting = asyncio.Event()
        self._deadline = math.inf
        self._news = asyncio.Event()
        self.runs: list[ContainerRun] = []
        self._views: list[status.View] = []
        # KWOK wrote an entry for every container when it handed the pod over.
        stored = {each["name"]: each for each in pod["status"]["containerStatuses"]}
        for container in pod["spec"]["containers"]:
            entry = stored[container["name"]]
            if host.program(container) is None:
                view = status.View.of(entry)
                view.ready, view.started, view.state = True, True, status.running(now())
            else:
                run = ContainerRun(host, lambda: self.pod, container, self._news.set, entry)
                self.runs.append(run)
                view = run.view
            self._views.append(view)
        self.see(pod)

    def see(self, pod: Doc) -> None:
        """A newer state of the object: its ConfigMaps' names and labels may matter, its deletion does."""
        before, self.pod = self.pod, pod
        grace = pod["metadata"].get("deletionGracePeriodSeconds")
        if grace is None:
            return
        if not self._deleting.is_set() or grace != before["metadata"].get("deletionGracePeriodSeconds"):
            self._deadline = time.monotonic() + grace
        self._deleting.set()

    def vanish(self) -> None:
        """The object is gone: so is the program, at once."""
        self._gone = True
        for run in self.runs:
            run.kill()
        self._deleting.set()

    async def live(self) -> None:
        """Until the object is gone."""
        helpers = [asyncio.create_task(each) for each in (self._write_news(), self._refresh())]
        try:
            if not self._ended:
                await self._until_ended()
            await self._deleting.wait()
        finally:
            for run in self.runs:
                run.kill()
            for helper in helpers:
                helper.cancel()
        shutil.rmtree(self._host.folder(self.pod) / "volumes", ignore_errors=True)
        await self._say_and_delete()

    async def _until_ended(self) -> None:
        for run in self.runs:
            run.begin()
        tasks = [run.task for run in self.runs if run.task is not None]
        ended = asyncio.gather(*tasks, return_exceptions=True)
        deleting: asyncio.Future[Any] = asyncio.ensure_future(self._deleting.wait())
        await asyncio.wait([deleting, ended], return_when=asyncio.FIRST_COMPLETED)
        deleting.cancel()
        if self._deleting.is_set():
            await asyncio.gather(*(run.stop(lambda: self._deadline) for run in self.runs))
        for result in await ended:
            if isinstance(result, Exception):
                print(f"{self.pod['metadata']['name']}: {result!r}", file=sys.stderr, flush=True)
        for view in self._views:
            if "running" in view.state:
                view.state = status.terminated(0, view.state["running"]["startedAt"], now())
            view.ready = view.started = False
        self._ended = True
        self._news.set()

    # --- what the API server is told

    async def _write_news(self) -> None:
        while not self._gone:
            await self._news.wait()
            self._news.clear()
            if not await self._write():
                await asyncio.sleep(_AGAIN_S)
                self._news.set()

    async def _write(self) -> bool:
        """Write the status as it is now; False when the API server did not take it."""
        self._conditions = status.conditions(self._views, self._conditions, now(), ended=self._ended)
        metadata = self.pod["metadata"]
        body = {
            "metadata": {"uid": metadata["uid"]},
            "status": {
                "phase": status.phase(self._views, ended=self._ended),
                "conditions": self._conditions,
                "containerStatuses": [view.document() for view in self._views],
            },
        }
        path = f"{_path(metadata)}/status"
        return await self._asked(lambda: self._host.api.patch(path, body, content_type=STRATEGIC))

    async def _say_and_delete(self) -> None:
        """The last status, then the object's end; whatever happens to the API server meanwhile."""
        metadata = self.pod["metadata"]
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
        while not self._gone and not await self._write():
            await asyncio.sleep(_AGAIN_S)
        while not self._gone and not await self._asked(
            lambda: self._host.api.request("DELETE", _path(metadata), body)
        ):
            await asyncio.sleep(_AGAIN_S)

    async def _asked(self, call: Any) -> bool:
        try:
            await self._host.call(call)
        except ApiError as error:
            if error.status in (404, 409):
                # Another pod of this name, or none: 409 also says that the object changed under a write.
                self._gone = self._gone or error.status == 404 or "uid" in error.message.lower()
                return self._gone
            print(f"{self.pod['metadata']['name']}: {error}", file=sys.stderr, flush=True)
            return False
        except urllib3.exceptions.HTTPError:
            return False
        return True

    # --- what the program finds

    async def _refresh(self) -> None:
        """Changed ConfigMaps and Secrets reach the files of a running pod; nobody tells its program."""
        folder = self._host.folder(self.pod)
        follows = any(volumes.parts_of(volume) for volume in self.pod["spec"].get("volumes", []))
        while True:
            await asyncio.sleep(REFRESH_S)
            for run in self.runs:
                trim(folder / f"{run.view.name}.log")
            if not follows or not (folder / "volumes").exists() or self._ended:
                continue
            try:
                write_volumes(self.pod, folder, await self._host.sources(self.pod))
            except (volumes.NotYet, ApiError, urllib3.exceptions.HTTPError):
                pass  # files stay as they are


def _path(metadata: Doc) -> str:
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
