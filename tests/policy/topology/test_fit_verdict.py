"""Fit: the named group and its reasons."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policy.topology.facts import (
    EXCLUSIVE,
    GROUP_KEY,
    AntiAffinity,
    Cluster,
    Group,
    Quota,
    Unknown,
)
from policy.topology.fit import fit
from policy.topology.selectors import NodeTerm, Requirement, Taint, Toleration
from tests.policy.topology.builders import ZONE, demand, group, groups, node, standing


def test_whole_groups_that_fit() -> None:
    verdict = fit(Cluster((node("a"), node("b"))), groups(1, size=2))
    assert (verdict.kind, verdict.likely, verdict.misfit, verdict.pending) == ("fits", True, None, 0)
    assert verdict.exact
    assert {place for _, place in verdict.places} == {"a", "b"}


def test_the_first_group_that_does_not_fit_is_named_with_numbers_per_node() -> None:
    cluster = Cluster(
        (
            node("a"),
            node("b", gpus=4),
            node("c", taints=(Taint("maintenance", "", "NoSchedule"),)),
            node("d", unschedulable=True),
            node("e", ready=False),
            node("f", labels={"pool": "cpu"}),
            node("g", pods=0),
        )
    )
    on_pool = NodeTerm((Requirement("pool", "NotIn", ("cpu",)),))
    verdict = fit(cluster, groups(3, pod=demand(node_terms=(on_pool,))))
    assert (verdict.kind, verdict.pending, verdict.exact) == ("does_not_fit", 2, True)
    assert verdict.misfit is not None
    assert (verdict.misfit.role, verdict.misfit.index, verdict.misfit.pod) == ("decode", 1, 0)
    assert {reason.node: reason.code for reason in verdict.misfit.nodes} == {
        "a": "insufficient",
        "b": "insufficient",
        "c": "taint",
        "d": "unschedulable",
        "e": "taint",
        "f": "selector",
        "g": "too-many-pods",
    }
    sentences = {reason.node: reason.sentence for reason in verdict.misfit.nodes}
    assert sentences["a"] == "Insufficient nvidia.com/gpu (needs 8, 0 of 8 free)."
    assert sentences["b"] == "Insufficient nvidia.com/gpu (needs 8, 4 of 4 free)."
    assert "maintenance:NoSchedule" in sentences["c"] and "not-ready" in sentences["e"]
    assert verdict.misfit.summary[0] == ("Insufficient nvidia.com/gpu", 2)
    assert verdict.sentence.startswith(
        "decode group 1 does not fit: none of 7 nodes takes its leader: 2 Insuff"
    )


def test_tolerations_and_selectors_open_nodes() -> None:
    cluster = Cluster(
        (node("a", taints=(Taint("gpu", "yes", "NoSchedule"),), labels={"pool": "gpu"}), node("b"))
    )
    picky = demand(node_selector=(("pool", "gpu"),), tolerations=(Toleration("gpu", "Exists"),))
    assert fit(cluster, groups(1, pod=picky)).kind == "fits"
    assert fit(cluster, groups(2, pod=picky)).kind == "does_not_fit"
    assert fit(cluster, groups(2)).kind == "does_not_fit"


def test_pods_on_nodes_and_pods_that_wait_already_take_their_room() -> None:
    nodes = (node("a"), node("b"), node("c"))
    assert fit(Cluster(nodes, (standing("x", "a"),)), groups(2)).kind == "fits"
    assert fit(Cluster(nodes, (standing("x", "a"), standing("y", None))), groups(2)).kind == "does_not_fit"
    gated = standing("y", None, gated=True)
    assert fit(Cluster(nodes, (standing("x", "a"), gated)), groups(2)).kind == "fits"
    elsewhere = standing("z", "gone")
    assert fit(Cluster(nodes, (elsewhere,)), groups(3)).kind == "fits"


def test_a_waiting_pod_that_fits_nowhere_blocks_nobody() -> None:
    verdict = fit(Cluster((node("a"),), (standing("big", None, demand(16)),)), groups(1))
    assert (verdict.kind, verdict.pending, verdict.exact) == ("fits", 1, True)


def test_host_ports() -> None:
    ports = demand(0, asks={"host-port:TCP:8000": 1})
    verdict = fit(Cluster((node("a"), node("b"))), groups(3, pod=ports))
    assert verdict.kind == "does_not_fit"
    assert verdict.misfit is not None and {r.code for r in verdict.misfit.nodes} == {"host-port"}


ZONES = tuple(node(f"{zone}{i}", zone=zone) for zone in "xyz" for i in range(2))


def test_exclusive_groups_take_one_domain_each() -> None:
    cluster = Cluster((*ZONES, node("no-zone")))
    assert fit(cluster, groups(3, size=2, exclusive=ZONE)).kind == "fits"
    verdict = fit(cluster, groups(4, size=2, exclusive=ZONE))
    assert (verdict.kind, verdict.exact) == ("does_not_fit", True)
    assert (verdict.pending, verdict.uncreated) == (1, 1)
    assert verdict.misfit is not None and verdict.misfit.index == 3
    reasons = {reason.node: reason for reason in verdict.misfit.nodes}
    assert reasons["no-zone"].code == "no-domain"


def test_a_domain_holds_half_a_group_or_another_group() -> None:
    small = fit(Cluster(ZONES), groups(1, size=3, exclusive=ZONE))
    assert small.kind == "does_not_fit"
    assert small.misfit is not None and small.misfit.pod == 2
    assert {reason.code for reason in small.misfit.nodes} == {"insufficient", "exclusive-topology"}
    labels = {
        GROUP_KEY: "k",
        "leaderworkerset.sigs.k8s.io/name": "set",
        "leaderworkerset.sigs.k8s.io/group-index": "7",
    }
    tenants = tuple(
        standing(f"t{zone}", f"{zone}0", demand(1), labels={**labels, GROUP_KEY: zone}) for zone in "xyz"
    )
    full = fit(Cluster(ZONES, tenants), groups(1, size=1, exclusive=ZONE))
    assert full.kind == "does_not_fit"
    assert full.misfit is not None
    sentences = {reason.node: reason.sentence for reason in full.misfit.nodes}
    assert sentences["x1"] == f"{ZONE} x already holds set group 7."
    strangers = tuple(replace(pod, namespace="other") for pod in tenants)
    assert fit(Cluster(ZONES, strangers), groups(1, size=1, exclusive=ZONE)).kind == "fits"


def test_an_exclusive_group_keeps_ordinary_groups_of_its_namespace_out() -> None:
    owner = standing("o", "x0", demand(1), labels={GROUP_KEY: "k"}, exclusive=ZONE)
    cluster = Cluster(ZONES, (owner,))
    assert fit(cluster, groups(4)).kind == "fits"
    verdict = fit(cluster, groups(5))
    assert verdict.kind == "does_not_fit"
    assert verdict.misfit is not None
    assert {r.node for r in verdict.misfit.nodes if r.code == "exclusive-topology"} == {"x1"}
    other = [replace(one, namespace="other") for one in groups(5)]
    assert fit(cluster, other).kind == "fits"


def test_a_domain_that_takes_a_leader_but_not_its_workers_makes_it_a_guess() -> None:
    cluster = Cluster((*ZONES[:2], node("y0", zone="y"), node("y1", gpus=0, zone="y")))
    verdict = fit(cluster, groups(1, size=2, exclusive=ZONE))
    assert verdict.kind == "estimate"
    assert "order" in verdict.sentence
    assert fit(cluster, groups(2, size=2, exclusive=ZONE)).kind == "does_not_fit"


def test_exclusive_and_ordinary_groups_with_room_for_both() -> None:
    exclusive = groups(1, size=2, role="prefill", exclusive=ZONE)
    assert fit(Cluster(ZONES), [*exclusive, *groups(2)]).kind == "fits"
    assert fit(Cluster(ZONES), [*exclusive, *groups(3)]).kind == "estimate"  # spread, they touch every zone
    assert fit(Cluster(ZONES), [*exclusive, *groups(5)]).kind == "does_not_fit"
    stranger = standing("w", None, demand(1))
    assert fit(Cluster(ZONES, (stranger,)), [*exclusive, *groups(1)]).kind == "estimate"


def test_ordinary_groups_beside_exclusive_ones_in_domains_of_several_sizes() -> None:
    sizes = {"s": 1, "m": 2, "l": 4}
    nodes = tuple(node(f"{zone}{i}", zone=zone) for zone, size in sizes.items() for i in range(size))
    exclusive = groups(1, size=1, role="prefill", exclusive=ZONE)
    outside = tuple(node(f"o{i}") for i in range(3))
    # Only if the exclusive group takes the smallest domain six others fit; it may take the largest.
    assert fit(Cluster(nodes), [*exclusive, *groups(7)]).kind == "does_not_fit"
    assert fit(Cluster(nodes), [*exclusive, *groups(6)]).kind == "estimate"
    many = tuple(node(f"z{i}", zone=f"z{i}") for i in range(9))
    assert fit(Cluster((*many, *nodes)), [*exclusive, *groups(10)]).kind == "fits"
    assert fit(Cluster((*nodes, *outside)), [*exclusive, *groups(2)]).kind == "fits"


def test_an_exclusive_group_may_take_the_domain_that_others_need() -> None:
    zones = tuple(node(f"z{i}", zone=f"z{i}") for i in range(9))
    pool = tuple(node(f"b{i}", zone="large" if i < 4 else "small", labels={"pool": "b"}) for i in range(5))
    exclusive = groups(1, size=1, role="prefill", exclusive=ZONE)
    picky = demand(node_selector=(("pool", "b"),))
    assert fit(Cluster((*zones, *pool)), [*exclusive, *groups(1, pod=picky)]).kind == "fits"
    assert fit(Cluster((*zones, *pool)), [*exclusive, *groups(2, pod=picky)]).kind == "estimate"


def test_workers_that_wait_for_a_leader_make_the_number_of_pending_pods_a_guess() -> None:
    prefill = group(0, size=2, role="prefill", leader_first=True)
    verdict = fit(Cluster((node("a"),)), [prefill, group(0)])
    assert (verdict.kind, verdict.pending) == ("does_not_fit", 2)
    assert not verdict.exact  # decode first: only two pods exist, and one of them waits
    assert fit(Cluster((node("a"),)), [replace(prefill, leader_first=False), group(0)]).exact


def test_a_leader_that_a_quota_refuses_leaves_its_workers_uncreated() -> None:
    pods = (demand(8), demand(0), demand(0))
    limit = Quota("q", "serving", {"requests.nvidia.com/gpu": 8}, {})
    cluster = Cluster((node("a"), node("b")), quotas=(limit,))
    verdict = fit(cluster, [Group("decode", i, "serving", pods) for i in range(2)])
    assert (verdict.kind, verdict.pending, verdict.uncreated) == ("does_not_fit", 0, 3)
    assert verdict.misfit is not None and (verdict.misfit.index, verdict.misfit.pod) == (1, 0)


def quota(**hard: int) -> Quota:
    named = {name.replace("_", "."): value for name, value in hard.items()}
    return Quota("q", "serving", named, {"pods": 1})


def test_a_quota_refuses_the_pod_before_any_node_is_asked() -> None:
    cluster = Cluster((node("a"), node("b"), node("c")), quotas=(quota(pods=3),))
    verdict = fit(cluster, groups(3))
    assert (verdict.kind, verdict.uncreated, verdict.pending) == ("does_not_fit", 1, 0)
    assert verdict.misfit is not None and verdict.misfit.index == 2 and not verdict.misfit.nodes
    assert "Quota q allows 3 of pods; 3 are used" in verdict.sentence
    assert fit(cluster, groups(2)).kind == "fits"
    assert fit(cluster, [replace(one, namespace="other") for one in groups(3)]).kind == "fits"


@pytest.mark.parametrize(
    ("hard", "fits"),
    [
        ({"requests.nvidia.com/gpu": 16}, True),
        ({"requests.nvidia.com/gpu": 15}, False),
        ({"requests.cpu": 2000}, True),
        ({"cpu": 1999}, False),
        ({"requests.memory": 1}, False),  # the pods name no memory
        ({"limits.cpu": 99_000}, False),  # nor a limit
        ({"services": 0, "count/configmaps": 0}, True),
    ],
)
def test_quota_resources(hard: dict[str, int], fits: bool) -> None:
    limit = Quota("q", "serving", hard, {})
    verdict = fit(Cluster((node("a"), node("b")), quotas=(limit,)), groups(2))
    assert (verdict.kind == "fits") is fits


@pytest.mark.parametrize(
    ("scopes", "selector", "kind"),
    [
        (("Terminating",), False, "fits"),
        (("BestEffort",), False, "fits"),
        (("NotTerminating", "NotBestEffort"), False, "does_not_fit"),
        ((), True, "estimate"),
        (("CrossNamespacePodAffinity",), False, "estimate"),
    ],
)
def test_quota_scopes(scopes: tuple[str, ...], selector: bool, kind: str) -> None:
    limit = Quota("q", "serving", {"pods": 0}, {}, scopes, selector)
    assert fit(Cluster((node("a"),), quotas=(limit,)), groups(1)).kind == kind


SPREAD = Unknown("topology-spread", "A spread constraint is not modelled.")
OTHER = Unknown("other-scheduler", "Another scheduler decides.", restricts=False)


def test_unknowns_make_an_estimate_unless_they_can_only_make_it_worse() -> None:
    cluster = Cluster((node("a"),))
    spread, other = demand(unknowns=(SPREAD,)), demand(unknowns=(OTHER,))
    fitting = fit(cluster, groups(1, pod=spread))
    assert (fitting.kind, fitting.likely) == ("estimate", True)
    assert "A spread constraint is not modelled." in fitting.sentence
    assert fit(cluster, groups(2, pod=spread)).kind == "does_not_fit"
    failing = fit(cluster, groups(2, pod=other))
    assert (failing.kind, failing.likely) == ("estimate", False)


def test_pods_that_repel_ours_are_an_unknown() -> None:
    term = AntiAffinity((Requirement("app", "In", ("engine",)),), frozenset({"serving"}))
    cluster = Cluster((node("a"), node("b")), (standing("x", "b", demand(1), repels=(term,)),))
    assert fit(cluster, groups(1)).kind == "fits"
    ours = groups(1, labels={"app": "engine"})
    assert [unknown.code for unknown in fit(cluster, ours).unknowns] == ["repelling-pods"]
    anywhere = replace(term, namespaces=None)
    everywhere = Cluster(cluster.nodes, (standing("x", "b", demand(1), repels=(anywhere,)),))
    away = [replace(one, namespace="other") for one in ours]
    assert fit(cluster, away).kind == "fits"
    assert fit(everywhere, away).kind == "estimate"


def test_priorities() -> None:
    cluster = Cluster((node("a"),), (standing("low", "a", priority=-1),))
    verdict = fit(cluster, groups(1))
    assert (verdict.kind, verdict.likely) == ("estimate", False)
    assert [unknown.code for unknown in verdict.unknowns] == ["preemption"]
    assert fit(cluster, groups(1, preempts=False)).kind == "does_not_fit"
    assert fit(cluster, groups(1, priority=-1)).kind == "does_not_fit"
    waiting = Cluster((node("a"),), (standing("high", None, demand(16), priority=5),))
    assert [unknown.code for unknown in fit(waiting, groups(1)).unknowns] == ["preempted"]


def test_exclusive_groups_that_wait_already_are_an_unknown() -> None:
    leader = standing("l", None, labels={GROUP_KEY: "k"}, exclusive=ZONE)
    verdict = fit(Cluster(ZONES, (leader,)), groups(1, size=2, exclusive=ZONE))
    assert verdict.kind == "estimate"
    assert "groups-ahead" in [unknown.code for unknown in verdict.unknowns]


def test_no_nodes_and_no_groups() -> None:
    assert fit(Cluster(()), []).kind == "fits"
    verdict = fit(Cluster(()), groups(1))
    assert verdict.kind == "does_not_fit"
    assert "no nodes" in verdict.sentence


def test_annotation_name_is_the_one_of_leaderworkerset() -> None:
    assert EXCLUSIVE == "leaderworkerset.sigs.k8s.io/exclusive-topology"
