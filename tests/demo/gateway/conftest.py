"""One scene and one gateway for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.demo.gateway.running import Gateway, Scene, staged


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with staged() as made:
        yield made


@pytest.fixture(scope="module")
def gateway(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    running = Gateway(scene.api, scene.stage, tmp_path_factory.mktemp("gateway"))
    try:
        yield running.wait_ready()
    finally:
        running.stop()
