"""The request path on the rig: gateway, router and engines are real processes; Lockstep reads, probes and judges."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controlplane.fleet.connections import connect_cluster
from controlplane.operations.models import Operation
from controlplane.paths.models import Pool, ProbeSeries
from controlplane.paths.objects import is_ready, read_objects
from controlplane.paths.services import record_pools, seen_pools
from controlplane.paths.view import derive_paths
from controlplane.upgrades.models import UpdateRecord
from deploy.demo.engines.roles import engine_pair
from deploy.demo.path import PROBE_HEADER, ServedPath
from deploy.demo.router.config import example_config
from deploy.rig import Rig, until, workloads
from tests.cluster.driving import Lockstep, install_target, lockstep_on
from tests.cluster.four import seen_now
from tests.cluster.midway import look_often

pytestmark = [pytest.mark.rig, pytest.mark.django_db(transaction=True)]
Json = dict[str, Any]
NEW = "registry.example/engine:v0.30.0-build2"


@pytest.fixture
def lockstep(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lockstep]:
    """A fresh installation."""
    install_target(rig)
    look_often(monkeypatch)
    with lockstep_on(rig, environment="development") as running:
        yield running


@pytest.fixture
def served(rig: Rig, namespace: str) -> Iterator[ServedPath]:
    """Gateway and engines in the namespace of the test."""
    with ServedPath(rig, namespace) as path:
        yield path


def watch_paths(lockstep: Lockstep, namespace: str) -> Pool:
    """One round of the paths watch, for the one pool of the namespace."""
    lockstep.cluster.watcher_fence = 1
    lockstep.cluster.save(update_fields=["watcher_fence"])
    with connect_cluster(lockstep.cluster) as kube:
        objects = read_objects(kube)
    assert objects.unread == ()
    record_pools(cluster_id=lockstep.cluster.pk, fence=1, seen=seen_pools(derive_paths(objects)))
    return Pool.objects.get(cluster=lockstep.cluster, namespace=namespace, gone_at=None)


def probed(
    lockstep: Lockstep, served: ServedPath, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> Pool:
    """The pool of the test, with everything that a probe needs."""
    from django.conf import settings as django

    credential = {"urls": [served.probe_url], "headers": {PROBE_HEADER: served.secret}}
    (tmp_path / "probe").write_text(json.dumps(credential))
    monkeypatch.setattr(django, "LOCKSTEP_PROBE_CREDENTIALS", str(tmp_path))
    pool = watch_paths(lockstep, served.namespace)
    api = lockstep.operator
    seen = api.get(f"/api/v1/pools/{pool.pk}")
    changed = api.patch(
        f"/api/v1/pools/{pool.pk}",
        {
            "settings": {
                "probe_url": served.probe_url,
                "public_url": served.public_url,
                "model": "lockstep-demo/tiny",
                "credential": "probe",
                "rate": 40,
                **settings,
            }
        },
        headers={"If-Match": seen["ETag"]},
    )
    assert changed.status_code == 200, changed.json()
    pool.refresh_from_db()
    return pool


def series(lockstep: Lockstep, pool: Pool, **asked: Any) -> ProbeSeries:
    """A series that a person asked for, once it is over."""
    sent = lockstep.post(lockstep.operator, f"pools/{pool.pk}/probe", asked)
    assert sent.status_code == 202, sent.json()
    key = sent.json()["id"]
    lockstep.until("the series", lambda: ProbeSeries.objects.get(pk=key).state != "running", limit_s=60)
    return ProbeSeries.objects.get(pk=key)


Probed = Callable[..., Pool]


@pytest.fixture
def pool(
    lockstep: Lockstep, served: ServedPath, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Pool]:
    """``pool(**settings)`` once a model is served."""
    return lambda **settings: probed(lockstep, served, tmp_path, monkeypatch, **settings)


def test_the_read_model_shows_router_shares_and_guard(lockstep: Lockstep, served: ServedPath) -> None:
    label = served.serve("chat", engine_pair())
    watch_paths(lockstep, served.namespace)
    listed = lockstep.operator.get("/api/v1/pools?name=chat").json()["results"]
    assert [(row["name"], row["sets"], row["router_ready"], row["guard"]) for row in listed] == [
        ("chat", ["chat"], 1, "guarded")
    ]
    shown = lockstep.operator.get(f"/api/v1/pools/{listed[0]['id']}").json()["path"]
    assert shown["router"]["screener"] == {"mode": "max-role", "required_roles": ["prefill", "decode"]}
    assert shown["router"]["config"]["sure"] is True
    assert [(lane["revision"], lane["share"]) for lane in shown["planned"]["lanes"]] == [(label, 1.0)]


def test_probes_see_every_group_serve_through_the_gateway(
    lockstep: Lockstep, served: ServedPath, pool: Probed
) -> None:
    label = served.serve("chat", engine_pair())
    found = series(lockstep, pool(), kind="probe", revision=label)
    assert found.state == "judged", found.problem
    assert found.verdict["verdict"] == "green", (found.verdict["reason"], found.verdict["sentence"])
    assert {each["group"]["role"] for each in found.verdict["coverage"]} == {"prefill", "decode"}
    assert len(found.verdict["coverage"]) == 6 and not found.verdict["missing"]
    assert {each["stamped"] for each in found.results} == {label}


def test_parity_of_a_good_pair_is_ok(lockstep: Lockstep, served: ServedPath, pool: Probed) -> None:
    label = served.serve("chat", engine_pair())
    found = series(lockstep, pool(), kind="parity", revision=label)
    assert found.state == "judged", found.problem
    assert found.verdict["verdict"] == "ok", found.verdict["sentence"]


def test_a_pair_that_answers_200_with_wrong_tokens_is_caught(
    lockstep: Lockstep, served: ServedPath, pool: Probed
) -> None:
    label = served.serve("chat", engine_pair())
    served.fault({"pair": [label, label]}, {"corrupt_pair": {"fraction": 0.3}})
    there = pool()
    probes = series(lockstep, there, kind="probe", revision=label)
    assert {each["status"] for each in probes.results} == {200}
    parity = series(lockstep, there, kind="parity", revision=label)
    assert parity.verdict["verdict"] in ("red", "garbage"), parity.verdict["sentence"]


def test_without_settings_nothing_is_probed(lockstep: Lockstep, served: ServedPath) -> None:
    served.serve("chat", engine_pair())
    there = watch_paths(lockstep, served.namespace)
    said = lockstep.post(lockstep.operator, f"pools/{there.pk}/probe", {})
    assert (said.status_code, said.json()["code"]) == (409, "pool-not-probed")


def upgraded(lockstep: Lockstep, served: ServedPath, image: str = NEW, **options: Any) -> Operation:
    """A started upgrade of the served set."""
    return lockstep.upgrade(served.namespace, "chat", image=image, **options)


def place_evidence(operation: Operation, place: str) -> Json:
    """What was seen of the path there."""
    kept: Json = operation.memory["path_evidence"][place]
    return kept


def test_an_upgrade_is_proved_on_the_path_at_the_hold_and_at_the_end(
    lockstep: Lockstep, served: ServedPath, pool: Probed
) -> None:
    old = served.serve("chat", engine_pair())
    pool()
    operation = upgraded(lockstep, served, promote="manual")
    lockstep.reached(operation, "waiting", limit_s=90)
    new = lockstep.state(operation).memory["new"]
    evidence = place_evidence(operation, "slice-0-row-1")
    assert evidence["result"] == "green", evidence
    assert {(each["kind"], each["verdict"]) for each in evidence["series"]} == {
        ("probe", "green"),
        ("parity", "ok"),
    }

    # The pinned probe reaches the new revision, and clients cannot pin.
    assert served.ask("pinned", probe=True, headers={"x-disagg-revision": new})[2]["x-disagg-revision"] == new
    stamps = [
        served.ask(f"client {n}", headers={"x-disagg-revision": new})[2]["x-disagg-revision"]
        for n in range(200)
    ]
    assert 15 <= stamps.count(new) <= 68, "planned 0.2 of 200; 99.99 % of draws lie there"
    assert stamps.count(old) == 200 - stamps.count(new)
    watched = watch_paths(lockstep, served.namespace)
    planned = {lane["revision"]: round(lane["share"], 3) for lane in watched.path["planned"]["lanes"]}
    assert planned == {old: 0.8, new: 0.2}
    assert served.books()["mixed"]["all"] == 0

    seen_now(lockstep)
    assert lockstep.finished(operation, limit_s=180) == "succeeded", lockstep.story()
    record = UpdateRecord.objects.get(operation=operation).document["path_evidence"]
    assert record["state"] == "examined" and record["places"]["end"]["result"] == "green"
    assert served.books()["mixed"]["all"] == 0


def leaders(served: ServedPath, revision: str) -> dict[str, str]:
    """Name → UID of every ready leader pod of a revision."""
    selector = f"{workloads.REVISION_LABEL}={revision},leaderworkerset.sigs.k8s.io/worker-index=0"
    found = served.rig.client().items(f"/api/v1/namespaces/{served.namespace}/pods?labelSelector={selector}")
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in found if is_ready(pod)}


def test_a_pod_that_came_after_the_proof_is_probed_before_the_row_goes_on(
    lockstep: Lockstep, served: ServedPath, pool: Probed
) -> None:
    served.serve("chat", engine_pair())
    pool()
    loose = {"restarts": {"required": False}}  # or that gate would stop it, whatever probes have seen
    operation = upgraded(lockstep, served, promote="manual", gates=loose)
    lockstep.until("the hold", lambda: lockstep.state(operation).waits_for.get("hold_key"), limit_s=90)
    new, place = operation.memory["new"], "slice-0-row-1"
    before = {each["series"] for each in place_evidence(operation, place)["series"]}
    name, uid = next((name, uid) for name, uid in leaders(served, new).items() if "decode" in name)

    served.rig.client().delete(f"/api/v1/namespaces/{served.namespace}/pods/{name}?gracePeriodSeconds=0")
    replaced = until(
        "another pod of the name",
        lambda: (now := leaders(served, new).get(name, uid)) != uid and now,
        limit_s=30,
    )
    seen_now(lockstep)
    said = lockstep.verb(operation, "promote", {"reason": "it was green a moment ago"})
    assert said.status_code == 200, said.json()

    def next_row() -> Any:
        return operation.steps.filter(name="upgrades.raise_row", args__row=2, state="done").first()

    raised = lockstep.until("the next row", next_row, limit_s=60)
    evidence = place_evidence(lockstep.state(operation), place)
    newer = ProbeSeries.objects.filter(pk__in=[each["series"] for each in evidence["series"]], kind="probe")
    assert evidence["result"] == "green" and not before & set(newer.values_list("pk", flat=True))
    assert [replaced in [group[3] for group in each.plan["groups"]] for each in newer] == [True]
    assert all(each.finished_at and each.finished_at < raised.first_claimed_at for each in newer)
    looks = operation.steps.filter(name="upgrades.prove_path", args__at=place, state="done")
    holds = operation.steps.filter(name="upgrades.hold", args__row=1, state="done").order_by("index")
    assert looks.count() == 2, "once at first, once more for the new pod"
    assert name in holds[0].result["path"], "and the step says why"


def test_a_pair_that_answers_200_with_garbage_is_held_and_aborted(
    lockstep: Lockstep, served: ServedPath, pool: Probed
) -> None:
    old = served.serve("chat", engine_pair())
    pool()
    operation = upgraded(lockstep, served)
    lockstep.until("the new revision", lambda: lockstep.state(operation).memory["new"], limit_s=60)
    new = operation.memory["new"]
    served.fault({"pair": [new, new]}, {"corrupt_pair": {"fraction": 0.4}})
    held = lockstep.reached(operation, "held", limit_s=90)
    assert held.finding["code"] == "path-red", held.finding
    assert "parity" in held.finding["sentence"].lower()
    aborted = lockstep.verb(operation, "abort", {"reason": "garbage"})
    assert aborted.status_code == 200, aborted.json()
    assert lockstep.finished(operation, limit_s=120) == "aborted", lockstep.story()
    assert place_evidence(lockstep.state(operation), "abort")["result"] == "green"
    assert {key[0] for key, count in lockstep.counts(served.namespace, "chat").items() if count} == {old}


def hazards(lockstep: Lockstep, served: ServedPath) -> dict[str, str]:
    """Hazards of a plan to another image: id → sentence."""
    workload = lockstep.observe(served.namespace, "chat")
    plan = lockstep.draft(workload, {"roles": {role: {"image": NEW} for role in ("prefill", "decode")}})
    return {hazard["id"]: hazard["sentence"] for hazard in plan["hazards"]}


def test_a_plan_says_what_is_known_of_the_path(lockstep: Lockstep, served: ServedPath, pool: Probed) -> None:
    served.serve("chat", engine_pair())
    watch_paths(lockstep, served.namespace)
    found = hazards(lockstep, served)
    assert {"screening-not-proved", "path-not-probed"} <= set(found) and "path-not-examined" not in found
    pool()
    found = hazards(lockstep, served)
    assert not {"screening-not-proved", "path-not-probed", "path-not-examined", "clients-can-pin"} & set(
        found
    )


def test_a_route_that_passes_the_header_is_seen_from_the_public_side(
    lockstep: Lockstep, served: ServedPath, pool: Probed
) -> None:
    served.serve("chat", engine_pair(), guard=False)
    pool()
    assert "reached the router" in hazards(lockstep, served)["clients-can-pin"]


def test_without_a_screener_an_upgrade_in_place_is_blocked(
    lockstep: Lockstep, served: ServedPath, pool: Probed
) -> None:
    plain = example_config("chat").replace("mode: max-role", "mode: disabled")
    served.serve("chat", engine_pair(), config=plain)
    pool()
    found = hazards(lockstep, served)
    assert "no rollout screener that draws" in found["mixed-pairs-possible"]


def test_other_weights_or_another_configuration_make_the_approved_base_stale(
    lockstep: Lockstep, served: ServedPath, pool: Probed
) -> None:
    served.serve("chat", engine_pair())
    pool()
    operation = upgraded(lockstep, served)
    served.rig.apply([served.route("chat", {"chat": 7})])
    held = lockstep.reached(operation, "held")
    assert held.finding["code"] == "base-changed", held.finding
    assert lockstep.counts(served.namespace, "chat").keys() == {
        (held.memory["old"], role) for role in ("prefill", "decode")
    }, "nothing was written"
    lockstep.verb(operation, "abort", {"reason": "check again"})
    assert lockstep.finished(operation) == "aborted"
