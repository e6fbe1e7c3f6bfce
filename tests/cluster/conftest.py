"""A real control plane per test process, and sets on it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from deploy.demo.emulator.controllers.rig import EmulatedRig
from deploy.demo.path import router_program
from deploy.rig import NodePool, Rig, RigUnavailable, workloads
from tests.cluster.driving import Lockstep, install_target, lockstep_on
from tests.cluster.midway import Midway, at_first_hold, look_often

_numbers = itertools.count(1)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test marked `both` runs on the rig and on the emulator: what holds on the one has to hold on the other."""
    if metafunc.definition.get_closest_marker("both") and "rig" in metafunc.fixturenames:
        kinds = [pytest.param(kind, marks=getattr(pytest.mark, kind)) for kind in ("rig", "emulator")]
        metafunc.parametrize("rig", kinds, indirect=True, scope="session")


@pytest.fixture(scope="session")
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """One cluster for all tests of this process; a test that breaks it mends it again, or starts its own."""
    kind = getattr(request, "param", "rig")
    nodes, programs = NodePool(count=12), [router_program()]
    if kind == "emulator":
        with EmulatedRig(nodes=nodes, programs=programs) as emulated:
            yield cast(Rig, emulated)
        return
    try:
        running = Rig(nodes=nodes, programs=programs, path_crds=True).start()
    except RigUnavailable as missing:
        if os.environ.get("LOCKSTEP_REQUIRE_RIG", "") in {"1", "true"}:
            pytest.fail(f"LOCKSTEP_REQUIRE_RIG is set, but there is no rig: {missing.reason}", pytrace=False)
        pytest.skip(f"NO RIG, nothing is proved on a real control plane: {missing.reason}")
    with running:
        yield running


@pytest.fixture
def namespace(rig: Rig) -> Iterator[str]:
    """A namespace of the test's own, gone afterwards."""
    client = rig.client()
    name = workloads.make_namespace(client, f"test-{os.getpid()}-{next(_numbers)}")
    yield name
    client.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def make_set(rig: Rig, namespace: str) -> Callable[..., str]:
    """``make_set("name", **options)`` creates a set (4 prefill and 2 decode groups by default) and waits.

    Options are those of :func:`deploy.rig.workloads.disaggregated_set`; ``wait=False`` returns at once.
    Returns the revision label, or "" without waiting.
    """

    def make(name: str = "model", *, wait: bool = True, limit_s: float = 60.0, **options: Any) -> str:
        client = rig.client()
        client.create(workloads.disaggregated_set(name, namespace, **options))
        return workloads.wait_settled(client, namespace, name, limit_s=limit_s) if wait else ""

    return make


@pytest.fixture
def lockstep(rig: Rig, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Lockstep]:
    """A fresh installation that looks often. Its environment is production, where plans and holds need votes, unless
    the test is parametrized with another (`indirect`)."""
    install_target(rig)
    look_often(monkeypatch)
    with lockstep_on(rig, environment=getattr(request, "param", "production")) as running:
        yield running


@pytest.fixture
def midway(lockstep: Lockstep, namespace: str, make_set: Callable[..., str]) -> Midway:
    """An upgrade of 2 prefill and 1 decode groups that stands at its first hold."""
    return at_first_hold(lockstep, namespace, make_set)
