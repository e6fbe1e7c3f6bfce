"""`python -m deploy.demo.tour`: an upgrade to verified, a red gate with abort, and a restore, by REST, in sentences.

On the demo that runs, or else on one that is started for it and ended afterwards. The status is 0 only where all of it
came out as it should.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.error import URLError

from deploy.demo.chapters import SLOW_BUILD
from deploy.demo.client import ApiProblem, Client
from deploy.demo.folder import ROOT, running
from deploy.demo.office import API, TIMES_TOO, Office, Person, Unexpected, images
from deploy.demo.story import IMAGE, OPERATOR, TOOLS, VOTERS

Json = dict[str, Any]
Say = Callable[[str], None]

_READY_LIMIT_S = 240.0
_STORY_LIMIT_S = 600.0


class Tour:
    """The three acts, on one pool. Each can be played again and again."""

    def __init__(self, office: Office, say: Say) -> None:
        self._office, self._say = office, say
        self._by: Client = office.program(OPERATOR)

    def go(self) -> None:
        """All acts. Raises Unexpected, and what clients raise."""
        begun = time.monotonic()
        self._say(f"The pool is {TOOLS.address}: {TOOLS.prefill} prefill and {TOOLS.decode} decode groups.")
        good = self._upgrade()
        self._red_gate()
        self._restore(good)
        self._say(f"All of it came out as it should, in {_took(begun)}.")

    def _upgrade(self) -> Json:
        """To the verified end; the combination that came of it."""
        office, begun, before = self._office, time.monotonic(), self._set()
        build = self._build()
        self._say(f"\n1. An upgrade to verified: {build}.")
        number = office.upgrade(self._by, before["id"], "Tour: a good build.", images(build))
        self._say(
            f"   {OPERATOR} drafted it, a worker checked it against the live cluster, {' and '.join(VOTERS)} approved "
            f"its digest: operation {number} runs."
        )
        office.reached(self._by, number, "waiting")
        reached = time.monotonic()
        self._say(
            f"   The first complete row stands after {_took(begun)}: probes through the gateway were answered by the "
            "new revision alone, its answers are equal to those of a decode engine asked directly, all gates are green."
        )
        office.reached(self._by, number, "succeeded", holds=2)
        record = self._by.list(f"{API}/update-records", operation=number)[0]
        after = self._set()
        good = office.combinations(self._by, after, state="verified")[0]
        _must(record["outcome"] == "succeeded", f"the update record says {record['outcome']}")
        _must(
            len(after["revisions"]) == 1 and after["revisions"] != before["revisions"],
            "the revision did not change",
        )
        _must(good["revision"] == after["revisions"][0], "the verified combination is of another revision")
        self._say(
            f"   Approved at two holds, it ended {_took(reached)} later: {before['revisions'][0]} → "
            f"{after['revisions'][0]}, combination {good['number']} is verified. It took {_took(begun)}."
        )
        return good

    def _red_gate(self) -> None:
        """A slow build is held by a gate, and sent back."""
        office, begun, before = self._office, time.monotonic(), self._set()
        self._say("\n2. A red gate: a build that answers rightly, twenty times later than it should.")
        changes = images(self._build(), env=SLOW_BUILD)
        number = office.upgrade(self._by, before["id"], "Tour: a slow build.", changes, gates=TIMES_TOO)
        shown = office.reached(self._by, number, "held")
        finding = shown["finding"]
        _must(finding["code"] == "gate-red", f"it is held by {finding['code']}: {finding['sentence']}")
        middle = self._set()
        _must(before["revisions"][0] in middle["revisions"], "the old revision is gone at the hold")
        self._say(
            f"   After {_took(begun)} operation {number} is held, and went no further: {finding['sentence']}"
        )
        back = time.monotonic()
        office.verb(self._by, number, "abort", "Tour: too slow.")
        office.reached(self._by, number, "aborted")
        office.until(
            "the old revision alone", lambda: self._set()["revisions"] == before["revisions"], limit_s=30
        )
        self._say(f"   Aborted: {before['revisions'][0]} serves alone again, {_took(back)} after the word.")

    def _restore(self, good: Json) -> None:
        """While another upgrade stands at a hold, the verified combination is put back in its place."""
        office, begun, before = self._office, time.monotonic(), self._set()
        self._say(f"\n3. A restore of combination {good['number']}, in the place of an upgrade that runs.")
        number = office.upgrade(
            self._by, before["id"], "Tour: overtaken by a restore.", images(self._build())
        )
        office.reached(self._by, number, "waiting")
        self._say(f"   Operation {number} stands at its first hold after {_took(begun)}.")
        back = time.monotonic()
        restore = office.restore("tove.s", good["id"], "Tour: back to what is known to be good.")
        office.reached(self._by, restore, "succeeded")
        over = office.operation(self._by, number)
        _must(over["state"] == "superseded", f"the upgrade is {over['state']}, not superseded")
        office.until(
            "the good revision alone", lambda: self._set()["revisions"] == [good["revision"]], limit_s=30
        )
        self._say(
            f"   tove.s restored without a vote, as it is verified: operation {restore} took over and put "
            f"{good['revision']} back in {_took(back)}. Operation {number} is superseded."
        )
        for pause in self._by.list(f"{API}/automation-pauses", cluster__name=TOOLS.cluster, name=TOOLS.name):
            if pause.get("resumed_at") is None:
                office.act(
                    self._by, f"{API}/automation-pauses/{pause['id']}", "resume", {"reason": "Tour: seen."}
                )
        self._say("   Automation of the set, paused by the restore, was resumed.")

    def _set(self) -> Json:
        return self._office.workload(self._by, TOOLS.cluster, TOOLS.namespace, TOOLS.name)

    def _build(self) -> str:
        """An image that the set has never had."""
        plans = self._by.get(f"{API}/plans", workload=self._set()["id"])["count"]
        return f"{IMAGE}:v0.33.0-build{plans + 1}"


def _must(true: bool, otherwise: str) -> None:
    if not true:
        raise Unexpected(f"Something else came out: {otherwise}.")


def _took(begun: float) -> str:
    return f"{time.monotonic() - begun:.0f} s"


@contextmanager
def demo(say: Say) -> Iterator[Path]:
    """The facts of the demo that runs; of one started for this block where none runs. Raises Unexpected."""
    if data := next(iter(running()), None):
        yield _awaited(data)
        return
    say("No demo runs: one is started for the tour (about a minute), and ended after it.")
    with tempfile.NamedTemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "deploy.demo", "--port", "0", "--no-story"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield _started(process, Path(output.name))
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


def _started(process: subprocess.Popen[bytes], output: Path) -> Path:
    end = time.monotonic() + _READY_LIMIT_S
    while time.monotonic() < end:
        said = output.read_text(errors="replace")
        if process.poll() is not None:
            raise Unexpected(said.strip())
        if "Lockstep is ready: " in said and (found := re.search(r"For scripts: (\S+)", said)):
            return Path(found[1])
        time.sleep(0.5)
    raise Unexpected(f"The demo was not ready after {_READY_LIMIT_S:.0f} s.")


def _awaited(data: Path) -> Path:
    """The facts of a demo that may still be starting."""
    end = time.monotonic() + _READY_LIMIT_S
    while not (facts := data / "facts.json").is_file():
        if time.monotonic() > end or not data.is_dir():
            raise Unexpected("A demo is being started, but never became ready.")
        time.sleep(0.5)
    return facts


def read_facts(path: Path) -> Json:
    """What is in the file. Raises Unexpected for a demo of another kind."""
    facts: Json = json.loads(path.read_text())
    if "clusters" not in facts:
        raise Unexpected("The demo that runs is that of REAL=1; its walk is deploy.demo.walk.")
    return facts


def wait_for_story(facts: Json, say: Say) -> None:
    """Until the story has done with the tour's pool."""

    def over() -> bool:
        chapter = json.loads(Path(facts["story"]).read_text())["verified"]
        return chapter["state"] in ("told", "failed")

    end = time.monotonic() + _STORY_LIMIT_S
    if facts["story"] and not over():
        say("The story still works on the tour's pool; the tour waits for it.")
        while not over():
            if time.monotonic() > end:
                raise Unexpected("The story never had done with the tour's pool.")
            time.sleep(1)


def main() -> None:
    """Play it."""
    parser = argparse.ArgumentParser(prog="python -m deploy.demo.tour", description=__doc__)
    parser.add_argument(
        "facts", type=Path, nargs="?", help="the file that a running demo names; else it is found"
    )
    given = parser.parse_args().facts
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))

    def say(line: str) -> None:
        print(line, flush=True)

    try:
        with nullcontext(given) if given else demo(say) as path:
            facts = read_facts(path)
            say(f"Lockstep: {facts['address']}")
            wait_for_story(facts, say)
            people = {name: Person(**person) for name, person in facts["people"].items()}
            Tour(Office(facts["address"], people, VOTERS), say).go()
    except (Unexpected, ApiProblem, URLError, OSError) as problem:
        sys.exit(f"\nThe tour ended early. {problem}")
    except KeyboardInterrupt:
        sys.exit("\nThe tour was interrupted.")


if __name__ == "__main__":
    main()
