"""The verdict of a check: hazards for the right facts, rows, peak and fit."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from controlplane.holds.live import LiveSet
from controlplane.holds.scalers.seen import Scaler
from controlplane.upgrades.surroundings import Surroundings
from controlplane.upgrades.verdict import PlanVerdict
from policy.rollout.scalers import HPA, Pause, Target, plan_pause
from tests.controlplane.fleet.world import make_child, make_pod
from tests.controlplane.upgrades.given import (
    OLD,
    ROOMY,
    live_set,
    pair,
    role,
    sliced,
    verdict,
    with_image,
)

Json = dict[str, Any]


def said(found: PlanVerdict) -> dict[str, str]:
    """Severity of each hazard by id."""
    return {hazard["id"]: hazard["severity"] for hazard in found.hazards}


def clean(**options: Any) -> PlanVerdict:
    return verdict(live_set(pair()), with_image(pair()), **options)


def test_a_clean_plan_has_the_one_warning_that_every_plan_has() -> None:
    found = clean()
    worth_reading = {key: severity for key, severity in said(found).items() if severity != "info"}
    assert worth_reading == {"path-not-examined": "warn"}
    assert found.revision == OLD
    assert found.rows["version"] == 1 and found.rows["roles"] == ["prefill", "decode"]
    assert [(row["old"], row["new"]) for row in found.rows["rows"]][:3] == [
        ([4, 2], [0, 0]),
        ([4, 2], [1, 1]),
        ([3, 2], [1, 1]),
    ]
    assert found.rows["rows"][1]["holds"] == ["first-complete-row"]
    assert found.bounds.minimum_ready == (4, 2) and found.bounds.peak_devices == 8
    assert found.bounds.risk == "medium"


def changed(live: LiveSet, change: Callable[[Json], None]) -> LiveSet:
    body = deepcopy(live.body)
    change(body)
    return replace(live, body=body)


def test_groups_that_do_not_serve() -> None:
    assert said(clean()).get("old-groups-unready") is None
    some = verdict(live_set(pair(), ready={"prefill": 3}), with_image(pair()))
    assert said(some)["old-groups-unready"] == "block", "3 ready are under the minimum of 4"
    enough = verdict(
        live_set(pair(), ready={"prefill": 3}), with_image(pair()), minimum_ready={"prefill": 2, "decode": 2}
    )
    assert said(enough)["old-groups-unready"] == "warn"


def test_a_second_live_revision() -> None:
    other = make_child(pair()[0], "bbbb2222", 1)
    found = verdict(live_set(pair(), extra=[other]), with_image(pair()))
    assert said(found)["several-live-revisions"] == "block" and found.revision == ""
    drained = make_child(pair()[0], "bbbb2222", 0)
    assert "several-live-revisions" not in said(
        verdict(live_set(pair(), extra=[drained]), with_image(pair()))
    )


def test_a_set_that_is_moving() -> None:
    live = live_set(pair())

    def grow(body: Json) -> None:
        body["spec"]["roles"][0]["spec"]["replicas"] = 5

    assert said(verdict(changed(live, grow), with_image(pair(5, 2))))["rollout-in-flight"] == "block"


def test_nothing_to_roll_out_is_blocked_by_its_own_name() -> None:
    found = verdict(live_set(pair()), pair(5, 2))
    assert found.hazards[0]["id"] == "no-template-changes" and found.hazards[0]["severity"] == "block"


@pytest.mark.parametrize(
    ("version", "there"), [("0.9.0", False), ("v0.9.0", False), ("", True), ("0.8.0", True), ("main", True)]
)
def test_a_controller_whose_planner_is_not_known(version: str, there: bool) -> None:
    assert ("lws-version-unknown" in said(clean(version=version))) is there


def test_scalers_and_what_may_not_be_read() -> None:
    scaled = replace(ROOMY, scalers=(hpa_on(Target("DisaggregatedSet", "chat")),))
    found = said(clean(around=scaled))
    assert found["scaler-is-paused"] == "warn" and "scaler-on-role" not in found
    child = replace(
        ROOMY, scalers=(hpa_on(Target("LeaderWorkerSet", "chat-x-decode", "decode", 2, moves=True)),)
    )
    assert said(clean(around=child))["scaler-aims-at-revision"] == "warn"
    stuck = replace(scaled.scalers[0], pause=Pause(problem="somebody manages it"))
    assert said(clean(around=replace(ROOMY, scalers=(stuck,))))["scaler-on-role"] == "block"
    for unread in ("horizontalpodautoscalers", "scaledobjects", "podautoscalers"):
        assert said(clean(around=replace(ROOMY, unread=(unread,))))["scalers-unread"] == "block"


def hpa_on(target: Target) -> Scaler:
    body = {"kind": HPA, "metadata": {"name": "h", "uid": "1"}, "spec": {"minReplicas": 1, "maxReplicas": 9}}
    return Scaler(body, target, plan_pause(body, target))


@pytest.mark.parametrize("plural", ["nodes", "pods", "resourcequotas"])
def test_room_that_may_not_be_read_is_not_guessed(plural: str) -> None:
    found = clean(around=replace(ROOMY, unread=(plural,)))
    unknown = [h for h in found.hazards if plural in h["sentence"]]
    assert unknown and unknown[0]["severity"] != "info"


@pytest.mark.parametrize(
    ("where", "key", "value", "who"),
    [
        ("annotations", "argocd.argoproj.io/tracking-id", "app:x", "Argo CD"),
        ("labels", "argocd.argoproj.io/instance", "app", "Argo CD"),
        ("labels", "kustomize.toolkit.fluxcd.io/name", "app", "Flux"),
        ("labels", "helm.toolkit.fluxcd.io/name", "app", "Flux"),
    ],
)
def test_a_deployer_that_owns_the_set(where: str, key: str, value: str, who: str) -> None:
    live = changed(live_set(pair()), lambda body: body["metadata"].update({where: {key: value}}))
    found = verdict(live, with_image(pair()))
    (hazard,) = [h for h in found.hazards if h["id"] == "another-writer"]
    assert hazard["severity"] == "block" and who in hazard["sentence"]


def test_an_owner_that_controls_the_set() -> None:
    owner = {"kind": "InferenceService", "name": "chat", "controller": True}
    live = changed(live_set(pair()), lambda body: body["metadata"].update({"ownerReferences": [owner]}))
    assert said(verdict(live, with_image(pair())))["another-writer"] == "block"
    loose = {**owner, "controller": False}
    live = changed(live_set(pair()), lambda body: body["metadata"].update({"ownerReferences": [loose]}))
    assert "another-writer" not in said(verdict(live, with_image(pair())))


def test_somebody_who_names_a_private_service() -> None:
    after = with_image(pair())
    pod = after[1]["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]
    pod["containers"][0]["args"] = ["--peer", f"chat-{OLD}-prefill-prv"]
    new = set(said(verdict(live_set(pair()), after))) - set(said(clean()))
    assert any("prv" in key for key in new), new


@pytest.mark.parametrize(
    ("image", "hazard"),
    [
        ("e:latest", "mutable-tag"),
        ("e", "mutable-tag"),
        ("e:v2", "tag-without-digest"),
        ("e@sha256:" + 64 * "2", ""),
    ],
)
def test_images_that_may_change_under_their_name(image: str, hazard: str) -> None:
    found = set(said(verdict(live_set(pair()), with_image(pair(), image))))
    assert found & {"mutable-tag", "tag-without-digest"} == ({hazard} if hazard else set())


def test_no_surge_is_judged_by_what_was_written_not_by_what_the_server_filled_in() -> None:
    stored = {"type": "RollingUpdate", "rollingUpdateConfiguration": {"maxSurge": 0, "maxUnavailable": 1}}
    live = live_set(pair(pace=stored))
    written = with_image(pair(pace=stored))
    for each in written:
        each["spec"]["rolloutStrategy"] = {"type": "RollingUpdate", "rollingUpdateConfiguration": {}}
    by_default = verdict(live, with_image(pair(pace=stored)), written=written)
    assert "pace-defaults" in said(by_default)
    by_hand = verdict(live, with_image(pair(pace=stored)))
    assert "pace-defaults" not in said(by_hand)
    assert by_hand.bounds.risk == "high" and any("surge" in text for text in by_hand.bounds.risk_reasons)


# --- room


def test_the_first_group_that_does_not_fit_is_named() -> None:
    """4 and 2 groups stand; one more of each is needed at the peak, and one device is free."""
    around = full(free=1)
    found = clean(around=around)
    (hazard,) = [h for h in found.hazards if "fit" in h["id"]]
    assert hazard["severity"] == "block" and "decode" in str(hazard)
    assert not [h for h in clean(around=full(free=2)).hazards if h["severity"] == "block"]


def full(*, free: int) -> Surroundings:
    """One node with the six groups of the set on it, and so many devices left."""
    node = deepcopy(ROOMY.nodes[0])
    node["status"]["allocatable"]["nvidia.com/gpu"] = str(6 + free)
    pods = []
    for each in pair():
        child = make_child(each, OLD, each["spec"]["replicas"])
        for group in range(each["spec"]["replicas"]):
            pod = make_pod(child, group)
            pod["spec"] = {
                "nodeName": node["metadata"]["name"],
                **each["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"],
            }
            pods.append(pod)
    return Surroundings(nodes=(node,), pods=tuple(pods), quotas=(), scalers=(), unread=())


def test_pods_that_are_drained_by_then_leave_their_room() -> None:
    """Without surge nothing is added beside what has gone."""
    stored = {"type": "RollingUpdate", "rollingUpdateConfiguration": {"maxSurge": 0, "maxUnavailable": 1}}
    stands = [role("prefill", 4, pace=stored), role("decode", 4, pace=stored)]
    node = deepcopy(ROOMY.nodes[0])
    pods = []
    for each in stands:
        child = make_child(each, OLD, 4)
        for group in range(4):
            pod = make_pod(child, group)
            pod["spec"] = {
                "nodeName": node["metadata"]["name"],
                **each["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"],
            }
            pods.append(pod)
    around = Surroundings(nodes=(node,), pods=tuple(pods), quotas=(), scalers=(), unread=())
    found = verdict(live_set(stands), with_image(stands), around=around)
    assert found.bounds.peak_devices == 8, "never more than stand now"
    assert "does-not-fit" not in said(found)


# --- slices


def test_a_sliced_set_counts_every_slice() -> None:
    live, _ = sliced("settled")
    after = with_image(live.roles)
    together = verdict(live, after)
    one_by_one = verdict(live, after, slice_order="one-by-one")
    single = verdict(replace(live, body=without_slices(live), children=slice_0(live)), after)
    assert single.bounds.peak_devices * 2 == together.bounds.peak_devices
    assert one_by_one.bounds.peak_devices == single.bounds.peak_devices + single.rows["rows"][0]["devices"]
    assert together.rows["rows"] == single.rows["rows"], "rows are per slice"
    assert together.bounds.slice_order == "together" and one_by_one.bounds.slice_order == "one-by-one"


def without_slices(live: LiveSet) -> Json:
    return {**live.body, "spec": {k: v for k, v in live.body["spec"].items() if k != "slices"}}


def slice_0(live: LiveSet) -> Any:
    return {key: child for key, child in live.children.items() if key[0] == "0"}


def test_a_set_between_its_slices_is_not_upgraded() -> None:
    live, _ = sliced("canary")
    found = verdict(live, with_image(live.roles))
    assert said(found)["several-live-revisions"] == "block"


def test_children_from_before_slices_are_slice_0() -> None:
    live, _ = sliced("adopted")
    assert {key[0] for key in live.children} == {"0"} and live.slices == ["0"]
    assert verdict(live, with_image(live.roles)).revision == next(iter(live.children))[1]


def test_a_role_that_is_scaled_from_outside() -> None:
    live, _ = sliced("external")
    assert said(verdict(live, with_image(live.roles)))["scaler-on-role"] == "block"
