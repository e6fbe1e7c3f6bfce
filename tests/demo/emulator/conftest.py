"""One emulator per module, and what it is asked about."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.demo.emulator import Emulator
from deploy.rig import Api, workloads

Doc = dict[str, Any]
MANIFESTS = Path(__file__).resolve().parents[3] / "deploy" / "target"
_numbers = itertools.count(1)


def install_target(emulator: Emulator) -> None:
    """What deploy/target brings to a managed cluster."""
    for name in ("namespace.yaml", "rbac.yaml", "rollout-hold.yaml", "hold-guard.yaml"):
        emulator.apply((MANIFESTS / name).read_text())


def add_children(client: Api, namespace: str, name: str = "model", revision: str = "0123abcd") -> str:
    """The LeaderWorkerSets of a set, as its controller would make them; returns the revision."""
    stored = client.get(workloads.set_path(namespace, name))
    for role in stored["spec"]["roles"]:
        labels = {
            workloads.NAME_LABEL: name,
            workloads.ROLE_LABEL: role["name"],
            workloads.REVISION_LABEL: revision,
        }
        owner = {
            "apiVersion": stored["apiVersion"],
            "kind": stored["kind"],
            "name": name,
            "uid": stored["metadata"]["uid"],
            "controller": True,
        }
        metadata = {
            "name": f"{name}-{revision}-{role['name']}",
            "namespace": namespace,
            "labels": labels,
            "ownerReferences": [owner],
        }
        client.create(
            {
                "apiVersion": workloads.LWS_GROUP,
                "kind": "LeaderWorkerSet",
                "metadata": metadata,
                "spec": role["spec"],
            }
        )
    return revision


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    with Emulator(seed=1) as running:
        yield running


@pytest.fixture
def client(emulator: Emulator) -> Api:
    return emulator.client()


@pytest.fixture
def namespace(emulator: Emulator) -> str:
    """A namespace of the test's own."""
    return workloads.make_namespace(emulator.client(), f"test-{next(_numbers)}")
