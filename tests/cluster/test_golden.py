"""Golden outputs on the rig: parity of a path whose decode pods nobody asks directly, and what may be vouched for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controlplane.paths.models import GoldenOutputs, Pool, ProbeSeries
from controlplane.recovery.models import Combination
from deploy.demo.engines.roles import engine_pair
from deploy.demo.path import ServedPath
from deploy.rig import Rig
from tests.cluster.driving import Lockstep, install_target, lockstep_on
from tests.cluster.midway import look_often
from tests.cluster.test_path import hazards, place_evidence, probed, series, upgraded

pytestmark = [pytest.mark.rig, pytest.mark.django_db(transaction=True)]
Json = dict[str, Any]
Probed = Callable[..., Pool]


@pytest.fixture
def lockstep(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lockstep]:
    """A fresh installation."""
    install_target(rig)
    look_often(monkeypatch)
    with lockstep_on(rig, environment="development") as running:
        yield running


@pytest.fixture
def served(rig: Rig, namespace: str) -> Iterator[ServedPath]:
    """Gateway and engines in the namespace of the test; engines answer a near-tie now this way, now that."""
    with ServedPath(rig, namespace, jitter=0.01) as path:
        yield path


@pytest.fixture
def pool(
    lockstep: Lockstep, served: ServedPath, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Pool]:
    """``pool(**settings)`` once a model is served."""
    return lambda **settings: probed(lockstep, served, tmp_path, monkeypatch, **settings)


def record(lockstep: Lockstep, found: ProbeSeries) -> Any:
    """Vouch for the answers of a series."""
    return lockstep.post(
        lockstep.operator, f"probe-series/{found.pk}/record-golden", {"reason": "it serves well"}
    )


def parity(lockstep: Lockstep, served: ServedPath, pool: Pool, revision: str) -> tuple[ProbeSeries, Json]:
    """A series, and by the engines' own books where the KV of its prompts came from: transferred through the path, or
    computed by the pod that was asked directly (local)."""
    served.reset_books()
    found = series(lockstep, pool, kind="parity", revision=revision)
    came: dict[str, int] = {}
    for each in served.books()["by_pair"]:
        came[each["kv"]] = came.get(each["kv"], 0) + each["count"]
    return found, came


def test_a_good_path_is_green_and_a_corrupting_pair_red_without_asking_a_decode_pod(
    lockstep: Lockstep, served: ServedPath, pool: Probed
) -> None:
    label = served.serve("chat", engine_pair())
    direct, came = parity(lockstep, served, pool(), label)
    assert (direct.verdict["verdict"], came) == ("ok", {"transferred": 24, "local": 48})

    there, through = pool(reference="golden"), {"transferred": 48}
    assert "golden-not-recorded" in hazards(lockstep, served)
    first, came = parity(lockstep, served, there, label)
    assert (first.verdict["verdict"], first.verdict["reason"]) == ("not-evaluable", "no-reference")
    assert came == through, "no decode pod was asked directly"
    said = record(lockstep, first)
    assert said.status_code == 201, said.json()
    assert "golden-not-recorded" not in hazards(lockstep, served)

    good, came = parity(lockstep, served, there, label)
    assert (good.verdict["verdict"], good.verdict["reference"]) == ("ok", "golden"), good.verdict["sentence"]
    assert good.verdict["jitter"] > 0, "the jitter is that of the golden answers"
    assert came == through, "the same texts again, and no answer out of a cache"
    served.fault({"pair": [label, label]}, {"corrupt_pair": {"fraction": 0.3}})
    bad, came = parity(lockstep, served, there, label)
    assert bad.verdict["verdict"] in ("red", "garbage"), bad.verdict["sentence"]
    assert came == through


def test_an_upgrade_is_held_by_them_and_gives_the_next_ones(
    lockstep: Lockstep, served: ServedPath, pool: Probed
) -> None:
    old = served.serve("chat", engine_pair())
    there = pool(reference="golden")
    first, _ = parity(lockstep, served, there, old)
    assert record(lockstep, first).status_code == 201
    operation = upgraded(lockstep, served)
    lockstep.until("the new revision", lambda: lockstep.state(operation).memory["new"], limit_s=60)
    new = operation.memory["new"]
    served.fault({"pair": [new, new]}, {"corrupt_pair": {"fraction": 0.4}})
    held = lockstep.reached(operation, "held", limit_s=90)
    assert held.finding["code"] == "path-red", held.finding
    assert "reference" in held.finding["sentence"]

    served.heal()
    assert lockstep.verb(operation, "retry", {"reason": "mended"}).status_code == 200
    assert lockstep.finished(operation, limit_s=180) == "succeeded", lockstep.story()
    assert place_evidence(operation, "end")["result"] == "green"
    newest = GoldenOutputs.objects.usable().order_by("-pk")[0]
    combination = Combination.objects.filter(revision=new).order_by("-pk")[0]
    assert (combination.state, newest.revision) == ("verified", new)
    assert newest.verified_by == [{"kind": "combination", "id": combination.pk}]
    assert [each["digest"] for each in combination.golden["outputs"]] == [newest.digest]
    shown = lockstep.operator.get(f"/api/v1/pools/{there.pk}/export").json()
    assert shown["sets"][0]["recovery"]["verified"]["golden"][0]["answers"] == newest.answers
