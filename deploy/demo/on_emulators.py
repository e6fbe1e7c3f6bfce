"""The demo on emulated clusters: only Python is needed. One process a cluster, and a story that is played on them."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path

from deploy.demo import planting, welcome
from deploy.demo.client import Client
from deploy.demo.folder import ROOT, Folder
from deploy.demo.office import Office, Person
from deploy.demo.processes import PartFailed, Product
from deploy.demo.starting import part
from deploy.demo.story import ADMIN, CLUSTERS, VOTERS
from deploy.demo.telling import Telling
from deploy.demo.world import WorldFacts
from deploy.rig.parts import Keeper, RigFailed

_SERVE_LIMIT_S = 180.0
_END_LIMIT_S = 8.0


class EmulatedGround:
    """See the module; methods as launcher.Ground says."""

    def __init__(self, folder: Folder, seed: int, story: bool) -> None:
        self._folder, self._seed, self._story = folder, seed, story
        self._probes = folder.data / "probes"
        self._keeper: Keeper | None = None
        self._worlds: dict[str, WorldFacts] = {}
        self._people: dict[str, Person] = {}
        self._address = ""
        self.kubeconfig = folder.data / "kubeconfig.yaml"
        self.settings = {
            "LOCKSTEP_PROBE_CREDENTIALS": str(self._probes),
            "LOCKSTEP_PATHS_EVERY": "5",
            "LOCKSTEP_STABLE_FOR": "1",
        }

    @property
    def facts(self) -> Path:
        """For scripts: address, people, clusters."""
        return self._folder.data / "facts.json"

    @property
    def told(self) -> Path:
        """How far the story is."""
        return self._folder.data / "story.json"

    def begin(self, stack: ExitStack) -> None:
        """Start a process for each cluster; they come up while the rest does."""
        keeper = self._keeper = Keeper(logs=self._folder.logs, remove=None)
        stack.callback(self._end)
        for cluster in CLUSTERS:
            home = self._folder.data / cluster.name
            home.mkdir()
            argv = [sys.executable, "-m", "deploy.demo.world", cluster.name, "--folder", str(home)]
            environment = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **_passed_on()}
            keeper.start(cluster.name, [*argv, "--seed", str(self._seed)], environment)

    def plant(self, product: Product, stack: ExitStack) -> None:
        """People, clusters, pools."""
        self._address = product.address
        with part("people", self._folder):
            self._people[ADMIN] = planting.make_administrator(product)
            admin = Client(product.address, token=self._people[ADMIN].token)
            signed_in = Client(product.address)
            signed_in.sign_in(ADMIN, self._people[ADMIN].password)
            self._people |= planting.make_people(signed_in)
        with part(f"clusters {', '.join(cluster.name for cluster in CLUSTERS)}", self._folder):
            self._wait_serving()
            planting.write_kubeconfig(self.kubeconfig, self._worlds.values())
            planting.write_credentials(self._probes, self._worlds)
        with part("clusters and pools as Lockstep sees them", self._folder):
            planting.register_clusters(admin, self._worlds)
            planting.wait_seen(product, self._people)
            planting.say_how_to_probe(product, self._people, self._worlds)
        facts = {
            "address": product.address,
            "people": {name: asdict(person) for name, person in self._people.items()},
            "clusters": {name: asdict(world) for name, world in self._worlds.items()},
            "story": str(self.told) if self._story else "",
        }
        self.facts.touch(mode=0o600)
        self.facts.write_text(json.dumps(facts))

    def welcome(self) -> str:
        """Address, people, what is real, what to look at."""
        return welcome.of_emulators(
            self._address,
            people=self._people.values(),
            worlds=self._worlds,
            logs=self._folder.logs,
            facts=self.facts,
            story=self._story,
        )

    def go_on(self, stack: ExitStack) -> None:
        """Tell the story beside the running demo."""
        if self._story:
            office = Office(self._address, self._people, VOTERS)
            stack.enter_context(Telling(office, self._worlds, self.told))

    def check(self) -> None:
        """The clusters' processes."""
        assert self._keeper is not None
        for cluster in CLUSTERS:
            if not self._keeper.runs(cluster.name):
                raise self._failed(cluster.name, "ended by itself")

    def _wait_serving(self) -> None:
        end = time.monotonic() + _SERVE_LIMIT_S
        while len(self._worlds) < len(CLUSTERS):
            self.check()
            for cluster in CLUSTERS:
                found = WorldFacts.read(self._folder.data / cluster.name / "facts.json")
                if found is not None:
                    self._worlds[cluster.name] = found
            if time.monotonic() > end:
                slow = next(each.name for each in CLUSTERS if each.name not in self._worlds)
                raise self._failed(slow, f"does not serve after {_SERVE_LIMIT_S:.0f} s")
            time.sleep(0.1)

    def _end(self) -> None:
        """All at once, each in its own order."""
        assert self._keeper is not None
        with suppress(RigFailed):  # one has gone, or the keeper itself: then nothing of it is left
            for name in self._keeper.pids():
                self._keeper.signal(name, signal.SIGTERM)
            for cluster in CLUSTERS:
                self._keeper.stop(cluster.name, _END_LIMIT_S)
        self._keeper.close()

    def _failed(self, name: str, problem: str) -> PartFailed:
        assert self._keeper is not None
        # Its own parts log into the data folder, whose logs are kept beside ours.
        tail = self._keeper.tail(name).replace(str(self._folder.data), str(self._folder.logs))
        return PartFailed(f"cluster {name}", problem, self._folder.logs / f"{name}.log", tail)


def _passed_on() -> dict[str, str]:
    """What of our environment the clusters read; a keeper gives its programs nothing else."""
    return {name: os.environ[name] for name in ("LOCKSTEP_GATEWAY",) if name in os.environ}
