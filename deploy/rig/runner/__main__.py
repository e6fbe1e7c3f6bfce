"""``python -m deploy.rig.runner CONFIG``: follows pods until SIGTERM; see programs.RunnerConfig."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import urllib3

from deploy.rig.api import Api, ApiError
from deploy.rig.keeper import end_processes_with
from deploy.rig.programs import RunnerConfig
from deploy.rig.runner.host import MARK, Host
from deploy.rig.runner.pod import PodRun
from deploy.rig.runner.status import handed_over

Doc = dict[str, Any]
_PODS = "/api/v1/pods"
_AGAIN_S = 0.2


class Runner:
    """All pods that were handed over, by uid."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._lives: dict[str, PodRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def listed(self, pods: list[Doc]) -> None:
        """Everything there is: who is not in it is gone."""
        there = {pod["metadata"]["uid"] for pod in pods}
        for uid in [uid for uid in self._lives if uid not in there]:
            self._lives.pop(uid).vanish()
        for pod in pods:
            self._see(pod)

    def happened(self, event: Doc) -> None:
        """One event of the watch."""
        if event["type"] == "DELETED":
            life = self._lives.pop(event["object"]["metadata"]["uid"], None)
            if life is not None:
                life.vanish()
        elif event["type"] in ("ADDED", "MODIFIED"):
            self._see(event["object"])

    def kill_all(self) -> None:
        """No program outlives the runner."""
        for life in self._lives.values():
            for run in life.runs:
                run.kill()

    def _see(self, pod: Doc) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._lives:
            self._lives[uid].see(pod)
        elif handed_over(pod) and any(self._host.program(each) for each in pod["spec"]["containers"]):
            self._lives[uid] = PodRun(self._host, pod)
            task = asyncio.create_task(self._lives[uid].live())
            self._tasks.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            print(f"a pod's life broke off: {task.exception()!r}", file=sys.stderr, flush=True)


def _follow(api: Api, runner: Runner, loop: asyncio.AbstractEventLoop) -> None:
    """List and watch for ever, in a thread of its own; a lost stream or an old version begins again."""
    while True:
        try:
            listed = api.get(_PODS)
            loop.call_soon_threadsafe(runner.listed, listed["items"])
            version = listed["metadata"]["resourceVersion"]
            while True:
                for event in api.watch(_PODS, version=version):
                    version = event["object"]["metadata"]["resourceVersion"]
                    loop.call_soon_threadsafe(runner.happened, event)
        except (ApiError, urllib3.exceptions.HTTPError, OSError) as problem:
            print(f"watch: {problem}", file=sys.stderr, flush=True)
            time.sleep(_AGAIN_S)


async def _serve(config: RunnerConfig) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    host = Host(config)
    runner = Runner(host)
    threading.Thread(target=_follow, args=(Api(Path(config.kubeconfig)), runner, loop), daemon=True).start()
    await ended.wait()
    runner.kill_all()


def _end_leftovers(folder: str) -> None:
    """Kill what a runner before this one started, wherever it got to; returns when it is gone."""
    if left := end_processes_with(MARK, folder):
        sys.exit(f"programs of a runner before this one do not end: {left}")


def main() -> None:
    """Never returns before SIGTERM."""
    config = RunnerConfig.read(Path(sys.argv[1]))
    Path(config.folder).mkdir(parents=True, exist_ok=True)
    _end_leftovers(config.folder)
    asyncio.run(_serve(config))
    os._exit(0)  # calls that still wait for an API server are not waited for


if __name__ == "__main__":
    main()
