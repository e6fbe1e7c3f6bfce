"""What a rig has only when it is asked for: kinds of the request path, programs beside it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.rig import ApiError, NodePool, Rig, RigFailed
from deploy.rig.build import build

pytestmark = pytest.mark.rig


@pytest.fixture(scope="module")
def path() -> Iterator[Rig]:
    """A small rig with the kinds of the request path and without programs."""
    with Rig(nodes=NodePool(count=1), path_crds=True, run_lws=False) as running:
        yield running


def test_the_kinds_of_the_request_path_are_served(path: Rig) -> None:
    objective = {
        "apiVersion": "llm-d.ai/v1alpha2",
        "kind": "InferenceObjective",
        "metadata": {"name": "chat", "namespace": "default"},
        "spec": {"priority": -3, "poolRef": {"name": "pool"}},
    }
    stored = path.client().create(objective)
    assert stored["spec"]["poolRef"] == {
        "group": "inference.networking.k8s.io",
        "kind": "InferencePool",
        "name": "pool",
    }
    route = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": "route", "namespace": "default"},
        "spec": {
            "rules": [
                {
                    "backendRefs": [
                        {
                            "name": "pool",
                            "weight": 3,
                            "kind": "InferencePool",
                            "group": "inference.networking.k8s.io",
                        }
                    ]
                }
            ]
        },
    }
    assert path.client().create(route)["spec"]["rules"][0]["backendRefs"][0]["weight"] == 3
    scaler = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "scaler", "namespace": "default"},
        "spec": {
            "scaleTargetRef": {"name": "app"},
            "triggers": [{"type": "cpu", "metadata": {"value": "1"}}],
        },
    }
    assert path.client().create(scaler)["spec"]["scaleTargetRef"]["name"] == "app"


def test_a_program_beside_the_rig(path: Rig, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    script = f"import pathlib, time; print('up'); pathlib.Path({str(flag)!r}).touch(); time.sleep(600)"
    path.start_program("beside", [sys.executable, "-c", script], until_ready=flag.exists)
    assert "up" in path.log("beside") and path.gone() is None
    with pytest.raises(KeyError):
        path.start_program("beside", ["true"])
    path.stop_part("beside")
    assert "beside" not in path.pids() and path.gone() is None
    with pytest.raises(RigFailed, match="ended while waiting"):
        path.start_program("short", [sys.executable, "-c", "print('no')"], until_ready=lambda: False)
    assert path.gone() is None


def test_a_rig_that_asks_for_nothing_has_nothing(path: Rig) -> None:
    assert "runner" not in path.pids()
    with Rig(nodes=NodePool(count=1), run_lws=False) as plain:
        assert "runner" not in plain.pids()
        with pytest.raises(ApiError) as unknown:
            plain.client().get("/apis/inference.networking.k8s.io/v1")
    assert unknown.value.status == 404


def test_an_extra_that_nobody_knows() -> None:
    with pytest.raises(ValueError, match="knows no nothing"):
        build(extra=["nothing"])
