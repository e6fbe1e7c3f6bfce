"""Plays the story beside a running demo, and says how far it is: in a file and in one printed line a chapter."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.error import URLError

from deploy.demo.chapters import CHAPTERS, Chapter, Stage
from deploy.demo.client import ApiProblem
from deploy.demo.office import Office, Unexpected
from deploy.demo.world import WorldFacts
from deploy.rig.api import ApiError

Json = dict[str, Any]
# More operations at a time would make the machine the story.
_AT_ONCE = 3


class Telling:
    """``with Telling(office, worlds, file):`` plays every chapter on threads. A chapter that fails says so; the demo
    goes on."""

    def __init__(self, office: Office, worlds: Mapping[str, WorldFacts], file: Path) -> None:
        self._stop = threading.Event()
        office.gone = self._stop.is_set
        self._stage = Stage(office, worlds)
        self._file = file
        self._lock = threading.Lock()
        self._states: dict[str, Json] = {each.name: {"state": "to come"} for each in CHAPTERS}
        self._begun = time.monotonic()
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="story")

    def __enter__(self) -> Telling:
        self._write()
        for chapter in CHAPTERS:
            self._threads.submit(self._tell, chapter)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _tell(self, chapter: Chapter) -> None:
        if self._stop.is_set():
            return
        self._note(chapter, state="being told")
        begun = time.monotonic()
        try:
            sentence = chapter.tell(self._stage)
            state = "told"
        except (Unexpected, ApiProblem, ApiError, URLError, OSError, LookupError, ValueError) as problem:
            if self._stop.is_set():
                return
            sentence, state = f"{chapter.name}: this part of the story failed. {problem}", "failed"
        seconds = time.monotonic() - begun
        self._note(chapter, state=state, sentence=sentence, seconds=round(seconds, 1))
        print(f"  [{time.monotonic() - self._begun:4.0f} s] {sentence}", flush=True)
        if self._over():
            print("  The story is told.", flush=True)

    def _note(self, chapter: Chapter, **state: Any) -> None:
        with self._lock:
            self._states[chapter.name] = state
            self._write()

    def _over(self) -> bool:
        with self._lock:
            return all(each["state"] in ("told", "failed") for each in self._states.values())

    def _write(self) -> None:
        partial = self._file.with_suffix(".partial")
        partial.write_text(json.dumps(self._states, indent=1))
        os.replace(partial, self._file)
