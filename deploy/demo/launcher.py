"""Starts the parts in order and ends them in the opposite one, whatever happens in between."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from deploy.demo.folder import Folder, take_folder
from deploy.demo.on_emulators import EmulatedGround
from deploy.demo.on_rig import RigGround
from deploy.demo.processes import Product
from deploy.demo.starting import part
from deploy.services import start_postgres, start_valkey

# A demo that nobody waits for: new groups count as stable sooner than the 30 s of a real start.
SETTINGS = {"LOCKSTEP_STABLE_FOR": "3"}
_WATCH_S = 1.0


@dataclass
class Demo:
    """What a start is asked for. ``real``: on the rig, which needs Go; otherwise clusters are emulated."""

    port: int = 8000
    real: bool = False
    seed: int = 0
    story: bool = True


class Ground(Protocol):
    """The clusters that the product works on, and what is told of them."""

    settings: dict[str, str]

    @property
    def kubeconfig(self) -> Path:
        """The file with Lockstep's accounts; once `begin` was called, and whole once `plant` was."""

    def begin(self, stack: ExitStack) -> None:
        """Start the clusters; what they need to end goes onto the stack. May return before they serve."""

    def plant(self, product: Product, stack: ExitStack) -> None:
        """Make people, clusters, pools, through the API."""

    def welcome(self) -> str:
        """What a person reads when the demo is ready; its last line has the address."""

    def go_on(self, stack: ExitStack) -> None:
        """What is left to be done once the demo is ready, beside it."""

    def check(self) -> None:
        """Raise PartFailed for a part that ended by itself."""


def run(demo: Demo) -> None:
    """Start everything, print how to use it, and watch over the parts until a signal unwinds this call.

    Raises PartFailed for the part that did not start or ended by itself.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(take_folder())
        ground: Ground = RigGround(folder) if demo.real else EmulatedGround(folder, demo.seed, demo.story)
        product = _start(demo, folder, ground, stack)
        ground.plant(product, stack)
        print(ground.welcome(), flush=True)
        ground.go_on(stack)
        while True:
            time.sleep(_WATCH_S)
            if gone := product.gone():
                raise product.failed(gone, "ended by itself")
            ground.check()


def _start(demo: Demo, folder: Folder, ground: Ground, stack: ExitStack) -> Product:
    ground.begin(stack)
    with part("PostgreSQL", folder):
        database = stack.enter_context(start_postgres(folder.data))
    with part("Valkey", folder):
        broker = stack.enter_context(start_valkey(folder.data))
    product = Product(
        logs=folder.logs,
        database_url=database,
        broker_url=broker,
        kubeconfig=ground.kubeconfig,
        settings={**SETTINGS, **ground.settings},
    )
    stack.callback(product.stop)
    with part("migrations", folder):
        product.manage("migrate", "--no-input")
    with part("web", folder):
        product.start_web(demo.port)
    with part("worker, beat, watcher", folder):
        product.start_rest()
    return product
