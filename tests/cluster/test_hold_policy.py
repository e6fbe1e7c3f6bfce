"""The two admission policies as shipped, asked by server dry runs on a real API server: who may do what."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.rig import Rig, until, workloads
from tests.cluster.driving import install_target, release_all
from tests.cluster.holding import HOLD, NEW, PARAMETERS, PREFIX, Held, Json, dry, lws_path, message, refused

pytestmark = pytest.mark.rig


@pytest.fixture(scope="module")
def held(rig: Rig) -> Iterator[Held]:
    """One settled set of 4 prefill and 2 decode groups for all dry runs of this module."""
    install_target(rig)
    client = rig.client()
    namespace = workloads.make_namespace(client, "hold-policy")
    client.create(workloads.disaggregated_set("model", namespace))
    found = Held(rig, namespace, label=workloads.wait_settled(client, namespace, "model"))
    for child in workloads.lws_of(client, namespace, "model"):
        found.children[child["metadata"]["labels"][PREFIX + "role"]] = child
    yield found
    release_all(rig)
    client.delete(f"/api/v1/namespaces/{namespace}")


# --- the hold: one refusal a line


@pytest.mark.parametrize("who", ["admin", "stranger", "lws", "lockstep"])
def test_below_the_floor_is_refused_to_everybody(held: Held, who: str) -> None:
    held.stands(held.box("3..4 2..2"))
    said = refused(lambda: held.scaled("prefill", 2, who))
    assert f"lockstep hold U-7: model-{held.label}-prefill 4 -> 2, allowed 3..4" in said
    assert held.scaled("prefill", 3, who)["spec"]["replicas"] == 3
    assert "2 -> 1, allowed 2..2" in refused(lambda: held.scaled("decode", 1, who))


def test_above_the_ceiling_is_refused(held: Held) -> None:
    held.stands(held.box("3..5 2..2"))
    assert "U-7: " in (said := refused(lambda: held.scaled("prefill", 6))) and "4 -> 6, allowed 3..5" in said
    assert held.scaled("prefill", 5)["spec"]["replicas"] == 5


def test_the_hold_is_one_sided_so_that_a_way_back_is_open(held: Held) -> None:
    held.stands(held.box("0..2 3..5"))
    assert held.scaled("prefill", 3)["spec"]["replicas"] == 3, "down from above the ceiling"
    assert held.scaled("decode", 4)["spec"]["replicas"] == 4, "up from below the floor"
    assert "allowed 0..2" in refused(lambda: held.scaled("prefill", 5))
    assert "allowed 3..5" in refused(lambda: held.scaled("decode", 1))


def test_a_revision_that_is_not_named_is_created_at_0_only(held: Held) -> None:
    held.stands()
    assert held.make(role="prefill", revision=NEW, replicas=0, who="lws")
    said = refused(lambda: held.make(role="prefill", revision=NEW, replicas=1, who="lws"))
    assert f"lockstep hold U-7: model-{NEW}-prefill 0 -> 1, allowed 0..0" in said


def test_a_named_revision_is_created_up_to_its_ceiling(held: Held) -> None:
    held.stands(held.box(new="0..2 0..1"))
    assert held.make(role="prefill", revision=NEW, replicas=2)
    assert "0 -> 3, allowed 0..2" in refused(lambda: held.make(role="prefill", revision=NEW, replicas=3))
    assert "0 -> 2, allowed 0..1" in refused(lambda: held.make(role="decode", revision=NEW, replicas=2))


def test_slices_have_boxes_of_their_own(held: Held) -> None:
    held.stands({**held.box(), **held.box(new="0..2", slice_name="1")})
    assert held.make(role="prefill", revision=NEW, replicas=2, slice="1")
    assert "allowed 0..2" in refused(lambda: held.make(role="prefill", revision=NEW, replicas=3, slice="1"))
    assert "allowed 0..0" in refused(lambda: held.make(role="prefill", revision=NEW, replicas=1, slice="0"))
    assert "allowed 0..0" in refused(lambda: held.make(role="prefill", revision=NEW, replicas=1))


@pytest.mark.parametrize("who", ["admin", "stranger"])
@pytest.mark.parametrize("replicas", [1, 4, 9])
def test_the_scale_subresource_is_refused_whatever_the_number(held: Held, who: str, replicas: int) -> None:
    held.stands(held.box("0..9 0..9"))
    path = lws_path(held.namespace, f"model-{held.label}-prefill", "/scale")
    said = refused(lambda: dry(held.client(who), "PATCH", path, {"spec": {"replicas": replicas}}))
    assert "lockstep hold U-7: scaling through /scale is refused while an operation holds model" in said


@pytest.mark.parametrize("key", ["name", "role", "revision", "slice"])
@pytest.mark.parametrize("value", ["elsewhere", None])
def test_a_held_set_cannot_be_relabelled_out_of_its_box(held: Held, key: str, value: str | None) -> None:
    held.stands(held.box("0..9 0..9"))
    path = lws_path(held.namespace, f"model-{held.label}-prefill")
    body = {"metadata": {"labels": {PREFIX + key: value}}}
    if key == "slice" and value is None:
        assert dry(held.client(), "PATCH", path, body), (
            "0.9.0 has no such label: taking it away changes nothing"
        )
        return
    said = refused(lambda: dry(held.client(), "PATCH", path, body))
    assert "may not change its set, role, slice or revision label while it is held" in said
    assert "lockstep hold U-7: " in said


def test_a_relabel_does_not_carry_a_count_past_the_box(held: Held) -> None:
    held.stands()
    path = lws_path(held.namespace, f"model-{held.label}-prefill")
    body = {"metadata": {"labels": {PREFIX + "name": "elsewhere"}}, "spec": {"replicas": 1}}
    assert "lockstep hold U-7: " in refused(lambda: dry(held.client(), "PATCH", path, body))


def test_break_glass_passes(held: Held) -> None:
    held.stands()
    assert held.scaled("prefill", 1, "break-glass")["spec"]["replicas"] == 1
    path = lws_path(held.namespace, f"model-{held.label}-prefill")
    assert dry(held.client("break-glass"), "PATCH", path + "/scale", {"spec": {"replicas": 9}})
    assert dry(
        held.client("break-glass"), "PATCH", path, {"metadata": {"labels": {PREFIX + "role": "elsewhere"}}}
    )
    assert held.make(role="prefill", revision=NEW, replicas=7, who="break-glass")


def test_status_annotations_templates_and_other_labels_pass(held: Held) -> None:
    held.stands()
    path = lws_path(held.namespace, f"model-{held.label}-prefill")
    client = held.client()
    assert dry(client, "PATCH", path + "/status", {"status": {"readyReplicas": 3}})
    assert dry(client, "PATCH", path, {"metadata": {"annotations": {"note": "seen"}}})
    assert dry(client, "PATCH", path, {"metadata": {"labels": {"team": "chat"}}})
    assert dry(client, "PATCH", path, {"spec": {"leaderWorkerTemplate": {"size": 2}}})
    assert held.scaled("prefill", 4)["spec"]["replicas"] == 4, "the number that stands"


def test_other_sets_and_other_namespaces_are_left_alone(held: Held) -> None:
    held.stands()
    assert held.make(role="prefill", revision=NEW, replicas=3, name="another")
    assert held.make(role="prefill", revision=NEW, replicas=3, namespace="default")


def test_a_parameter_that_cannot_be_read_lets_nothing_through(held: Held) -> None:
    key = f"floor.0.{held.label}.prefill"
    held.stands()
    held.write({**held.box(), key: "three"})
    answer = until("the broken box", lambda: message(lambda: held.scaled("prefill", 3)), limit_s=15)
    until(
        "the broken box to be enforced",
        lambda: "allowed 4..4" not in message(lambda: held.scaled("prefill", 3)),
        limit_s=15,
    )
    assert answer
    refused(lambda: held.scaled("prefill", 3), status=422)


def test_released_means_free_at_once_and_held_again_under_a_higher_number(held: Held) -> None:
    held.stands()
    held.write({}, label="released")
    until("the set to be free", lambda: not message(lambda: held.scaled("prefill", 1)), limit_s=15)
    held.stands()
    assert "allowed 4..4" in refused(lambda: held.scaled("prefill", 1))


# --- the guard: who may touch a parameter

ONLY_US = "only Lockstep or break-glass may touch a hold"


@pytest.mark.parametrize("who", ["admin", "stranger"])
@pytest.mark.parametrize(
    "change",
    [
        {"data": {"operation": "U-8"}},
        {"metadata": {"labels": {HOLD: "released"}}},
        {"metadata": {"labels": {HOLD: None}}},
        {"metadata": {"annotations": {"note": "mine"}}},
        {"data": {"fence": "999999999"}},
    ],
    ids=["edited", "relabelled", "unlabelled", "annotated", "numbered"],
)
def test_nobody_else_changes_a_parameter(held: Held, who: str, change: Json) -> None:
    held.stands()
    assert ONLY_US in refused(lambda: held.client(who).patch(held.path, change))


@pytest.mark.parametrize("who", ["admin", "stranger"])
@pytest.mark.parametrize("label", ["true", "released"])
def test_nobody_else_deletes_a_parameter_whether_it_holds_or_not(held: Held, who: str, label: str) -> None:
    held.write(held.box(), label=label)
    assert ONLY_US in refused(lambda: held.client(who).delete(held.path))
    collection = held.client(who)
    assert ONLY_US in refused(lambda: collection.request("DELETE", PARAMETERS, {}))


@pytest.mark.parametrize(
    ("name", "labels"),
    [("free-riding", {HOLD: "true"}), ("hold-other.set", {}), ("anything", {HOLD: "released"})],
    ids=["labelled", "named", "labelled as released"],
)
def test_nobody_else_makes_what_would_be_a_parameter(held: Held, name: str, labels: Json) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "lockstep", "labels": labels},
        "data": {"namespace": held.namespace, "set": "model", "fence": "1"},
    }
    assert ONLY_US in refused(lambda: held.client("stranger").create(body))


def test_no_existing_config_map_becomes_a_parameter_by_a_label(held: Held) -> None:
    client = held.client("stranger")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "plain", "namespace": "lockstep"}}
    client.create(body)
    try:
        path = f"{PARAMETERS}/plain"
        assert client.patch(path, {"data": {"a": "b"}}), "others may keep their things in the namespace"
        said = refused(lambda: client.patch(path, {"metadata": {"labels": {HOLD: "true"}}}))
        assert ONLY_US in said
    finally:
        client.delete(f"{PARAMETERS}/plain")


def test_our_own_number_never_falls(held: Held) -> None:
    written = int(held.write(held.box())["data"]["fence"])
    said = refused(lambda: held.write(held.box(), fence=written - 1), status=422)
    assert "stale fence number: another claim took this operation over" in said
    assert held.write(held.box(), fence=written), "the same claim may write again"
    body = held.client("lockstep").get(held.path)
    del body["data"]["fence"]
    refused(lambda: held.client("lockstep").replace(body), status=422)


def test_lockstep_itself_never_deletes(held: Held) -> None:
    held.write(held.box())
    said = refused(lambda: held.client("lockstep").delete(held.path))
    assert "cannot delete resource" in said, "the account has no such right"
    with _right_to_delete(held.rig):
        said = until(
            "the right to delete",
            lambda: _if_policy(message(lambda: held.client("lockstep").delete(held.path))),
        )
    assert "a hold is released by its label, never deleted" in said


def _if_policy(message: str) -> str:
    assert message, "the delete was accepted"
    return message if "ValidatingAdmissionPolicy" in message else ""


class _right_to_delete:
    """More rights than shipped, to meet the guard behind them."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig

    def __enter__(self) -> None:
        self.rig.apply(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "too-much"},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": "cluster-admin",
                },
                "subjects": [{"kind": "ServiceAccount", "name": "lockstep", "namespace": "lockstep"}],
            }
        )

    def __exit__(self, *_: object) -> None:
        self.rig.client().delete("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/too-much")


def test_break_glass_may_do_anything_to_a_parameter(held: Held) -> None:
    held.stands()
    client = held.client("break-glass")
    assert client.patch(held.path, {"metadata": {"labels": {HOLD: "released"}}, "data": {"fence": "1"}})
    assert client.delete(held.path)
