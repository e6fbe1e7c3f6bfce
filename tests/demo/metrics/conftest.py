"""The metric source of the demo, alone and beside a real Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.demo.metrics.server import MetricSource
from deploy.rig.build import binary
from tests.controlplane.metrics.real import RealPrometheus
from tests.demo.metrics.both import Both


@pytest.fixture(scope="session")
def source() -> Iterator[MetricSource]:
    """One that scrapes nothing; tests load samples."""
    with MetricSource() as running:
        yield running


@pytest.fixture(scope="session")
def both(source: MetricSource, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """Ours and a real Prometheus, for the same samples and questions."""
    folder = tmp_path_factory.mktemp("prometheus")
    with RealPrometheus(binary("prometheus"), folder) as real, Both(real, source) as pair:
        yield pair
