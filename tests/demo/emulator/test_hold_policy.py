"""The shipped admission policies on the emulator: the very tests that they pass on a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from deploy.demo.emulator import Emulator
from deploy.rig import workloads
from tests.cluster import test_hold_policy as on_the_rig
from tests.cluster.holding import Held
from tests.demo.emulator.conftest import add_children, install_target

for _name in dir(on_the_rig):
    if _name.startswith("test_"):
        globals()[_name] = getattr(on_the_rig, _name)


@pytest.fixture(scope="module")
def held(emulator: Emulator) -> Iterator[Held]:
    """In place of the rig's: a set whose children are made by hand."""
    install_target(emulator)
    client = emulator.client()
    namespace = workloads.make_namespace(client, "hold-policy")
    client.create(workloads.disaggregated_set("model", namespace))
    found = Held(cast(Any, emulator), namespace, label=add_children(client, namespace))
    for child in workloads.lws_of(client, namespace, "model"):
        found.children[child["metadata"]["labels"][workloads.ROLE_LABEL]] = child
    yield found
