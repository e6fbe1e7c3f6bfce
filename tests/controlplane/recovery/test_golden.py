"""Golden outputs of a combination: given when an operation proves it, exported with it, gone when it is revoked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from controlplane.fleet.models import Cluster
from controlplane.paths.models import GoldenOutputs, Pool
from controlplane.recovery.models import Combination
from controlplane.recovery.services import store_combination, verify_combination
from tests.conftest import Cast
from tests.controlplane.paths.golden_world import NEW, carried_out, make_pool, usable
from tests.controlplane.paths.test_golden import record
from tests.controlplane.recovery.given import ACTOR, document, make_cluster, make_workload, stored
from tests.controlplane.recovery.test_combinations import post

pytestmark = pytest.mark.django_db
Api = Callable[..., APIClient]
Json = dict[str, Any]
OPERATION = {"kind": "operation", "id": 7}
SUBJECT = ("operation", "7")


@pytest.fixture
def cluster(db: None) -> Cluster:
    found = make_cluster()
    found.watcher_fence = 5
    found.save(update_fields=["watcher_fence"])
    return found


@pytest.fixture
def pool(cluster: Cluster, users: Cast, api: Api) -> Pool:
    """A pool for whose serving revision a person vouches; combinations of `given` name it by this UID."""
    found = make_pool(cluster)
    record(api(users.operator), carried_out(found))
    return found


def test_what_an_operation_proves_carries_its_golden_outputs(
    cluster: Cluster, pool: Pool, users: Cast, api: Api
) -> None:
    series = carried_out(pool, NEW, subject=SUBJECT)
    found = stored(cluster, revision=NEW, verified=False)
    assert found.golden == {} and len(usable()) == 1, "a candidate vouches for nothing"
    done = verify_combination(combination_id=found.pk, evidence=OPERATION, actor=ACTOR)
    golden = GoldenOutputs.objects.get(series=series)
    assert [each["digest"] for each in done.golden["outputs"]] == [golden.digest]
    assert golden.verified_by == [{"kind": "combination", "id": found.pk}]
    assert carried_out(pool, NEW).verdict["golden"]["id"] == golden.pk, "the newest is compared with"
    again = verify_combination(combination_id=found.pk, evidence=OPERATION, actor=ACTOR)
    assert again.version == done.version, "verified twice is verified"

    client = api(users.viewer)
    shown = client.get(f"/api/v1/combinations/{found.pk}").json()["golden"]["outputs"]
    assert shown[0]["id"] == golden.pk and "answers" not in shown[0]
    workload = make_workload(cluster)
    exported = client.get(f"/api/v1/workloads/{workload.pk}/export").json()["recovery"]["verified"]
    assert exported["golden"][0]["answers"] == golden.answers


def test_what_is_stored_as_proved_carries_them_too(cluster: Cluster, pool: Pool) -> None:
    series = carried_out(pool, NEW, subject=SUBJECT)
    found, _ = store_combination(
        cluster=cluster, document=document(revision=NEW), reason="", actor=ACTOR, evidence=OPERATION
    )
    assert [each["id"] for each in found.golden["outputs"]] == [GoldenOutputs.objects.get(series=series).pk]


@pytest.mark.parametrize(
    ("said", "subject"),
    [({"wrong": True}, SUBJECT), ({}, ("operation", "8")), ({"cached": 0}, SUBJECT)],
)
def test_what_is_not_green_or_not_its_own_is_no_golden_output(
    cluster: Cluster, pool: Pool, said: Json, subject: tuple[str, str]
) -> None:
    carried_out(pool, NEW, subject=subject, **said)
    found = stored(cluster, revision=NEW, verified=False)
    done = verify_combination(combination_id=found.pk, evidence=OPERATION, actor=ACTOR)
    assert done.state == "verified" and done.golden == {} and len(usable()) == 1


def test_a_revoked_combination_vouches_for_nothing(
    cluster: Cluster, pool: Pool, users: Cast, api: Api
) -> None:
    series = carried_out(pool, NEW, subject=SUBJECT)
    found = stored(cluster, revision=NEW, verified=False)
    version = verify_combination(combination_id=found.pk, evidence=OPERATION, actor=ACTOR).version
    assert series.pk in usable()
    revoked = post(api(users.operator), f"combinations/{found.pk}/revoke", {"reason": "it leaks"}, version)
    assert revoked.status_code == 200, revoked.json()
    assert series.pk not in usable() and len(usable()) == 1, "the person's are left"
    assert GoldenOutputs.objects.get(series=series).revoked_reason == "it leaks"
    assert Combination.objects.get(pk=found.pk).golden["outputs"], "what it once had stays on record"
