"""An operation that scalers are paused for."""

from __future__ import annotations

import pytest

from controlplane.holds.scalers.steps import PAUSE
from controlplane.operations.models import Operation
from tests.conftest import Cast
from tests.controlplane.fleet.world import UID
from tests.controlplane.holds.scaling import memory
from tests.controlplane.operations.toy import make_cluster, make_operation


@pytest.fixture
def operation(users: Cast) -> Operation:
    """An operation that has taken the set."""
    return make_operation(
        users.operator,
        cluster=make_cluster(writes="ours"),
        targets=[UID],
        steps=[PAUSE, "toy.end"],
        memory=memory(),
    )
