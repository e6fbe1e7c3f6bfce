"""A real Prometheus for the tests of this folder, shared: each test has a namespace of its own in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from controlplane.metrics.client import Prometheus
from deploy.rig.build import binary
from tests.controlplane.metrics.real import RealPrometheus
from tests.controlplane.metrics.story import Story


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPrometheus]:
    with RealPrometheus(binary("prometheus"), tmp_path_factory.mktemp("prometheus")) as running:
        yield running


@pytest.fixture
def client(server: RealPrometheus) -> Iterator[Prometheus]:
    with Prometheus(server.url, timeout_s=5) as opened:
        yield opened


@pytest.fixture
def story(server: RealPrometheus, client: Prometheus) -> Story:
    return Story(server, client)
