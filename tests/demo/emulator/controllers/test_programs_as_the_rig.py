"""Programs in place of containers on the emulator: the rig's own runner, and the rig's own tests of it."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator

import pytest

from deploy.demo.emulator.controllers.rig import EmulatedRig
from deploy.rig import NodePool, PodProgram, service_account, workloads
from tests.cluster import test_rig_programs as on_the_rig
from tests.cluster.programs import PROGRAM, SERVER

_numbers = itertools.count(1)
for _name in dir(on_the_rig):
    # The real EPP is built with the rig.
    if _name.startswith("test_") and "real_epp" not in _name:
        globals()[_name] = getattr(on_the_rig, _name)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedRig]:
    """In place of a rig."""
    source = tmp_path_factory.mktemp("program") / "program.py"
    source.write_text(PROGRAM)
    server = (sys.executable, str(source))
    everywhere = PodProgram(
        "registry.example/everywhere", (*server, "--everywhere"), {8000: "--port"}, identity="nobody"
    )
    programs = [
        PodProgram(SERVER, server),
        everywhere,
        PodProgram("registry.example/missing", ("/nonexistent/program",)),
    ]
    account = service_account("app", "with-account", "app")
    with EmulatedRig(nodes=NodePool(count=2), programs=programs, identities=[account]) as running:
        yield running


@pytest.fixture
def namespace(rig: EmulatedRig) -> Iterator[str]:
    """A namespace of the test's own, gone afterwards."""
    name = workloads.make_namespace(rig.client(), f"test-{next(_numbers)}")
    yield name
    rig.client().delete(f"/api/v1/namespaces/{name}")
