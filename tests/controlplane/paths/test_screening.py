"""When a router's configuration keeps a set's requests inside one revision, and what the public side shows of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from controlplane.paths import screening
from controlplane.paths.objects import PathObjects, keep_pod
from controlplane.paths.pool_settings import PoolSettings
from controlplane.paths.requests import DROPPED_REASON, Reply
from controlplane.paths.screening import Screened, guard_was_seen, prove_guard, read_screening
from controlplane.paths.view import PoolView, derive_paths, find_path, paths_of_set
from deploy.demo.router.config import example_config
from tests.controlplane.paths.world import engines, objects, router_pod

Json = dict[str, Any]
OLD, NEW = "aaaaaaaa", "bbbbbbbb"
PODS = engines("chat", {("prefill", OLD): 2, ("decode", OLD): 1, ("prefill", NEW): 1, ("decode", NEW): 1})
STARTED_LATER = "2026-11-30T10:30:00Z"


def the_pool(seen: PathObjects, name: str = "chat") -> PoolView:
    path = find_path(seen, pool=name)
    assert path is not None
    return path.pool(name)


def read(seen: PathObjects, name: str = "chat", **options: Any) -> Screened:
    return read_screening(the_pool(seen, name), roles=["prefill", "decode"], **options)


def world(config: str | None = None, **options: Any) -> PathObjects:
    return objects("chat", pods=PODS, config=config, **options)


def test_one_router_with_a_screener_of_all_roles_is_configured() -> None:
    assert read(world()).state == "configured"


def test_a_router_that_is_not_ready_says_so() -> None:
    found = read(world(router_ready=False))
    assert found.state == "unknown" and "is ready" in found.why


# Two pods of one router.


def with_second(
    change: Callable[[Json], Any], *, ready: bool = True, started: str = STARTED_LATER
) -> PathObjects:
    seen = world()
    second = copy.deepcopy(router_pod(seen.deployments[0], ready=ready, name="second", started=started))
    change(second)
    return replace(seen, pods=(*seen.pods, keep_pod(second)))


def other_volume(pod: Json) -> None:
    pod["spec"]["volumes"][0]["configMap"]["name"] = "chat-epp-other"


def other_argument(pod: Json) -> None:
    pod["spec"]["containers"][0]["args"].append("--config-text=plugins: []")


def another_program(pod: Json) -> None:
    pod["spec"]["containers"][0]["args"] = []


@pytest.mark.parametrize("ready", [True, False])
@pytest.mark.parametrize("change", [other_volume, other_argument, another_program])
def test_router_pods_that_run_different_configurations_are_not_known(
    change: Callable[[Json], None], ready: bool
) -> None:
    found = read(with_second(change, ready=ready))
    assert found.state == "unknown" and "different configurations" in found.why


def test_router_pods_that_run_the_same_are_configured() -> None:
    assert read(with_second(lambda pod: None)).state == "configured"


def test_an_evicted_router_pod_does_not_count() -> None:
    def evict(pod: Json) -> None:
        other_volume(pod)
        pod["status"]["phase"] = "Failed"

    assert read(with_second(evict, ready=False)).state == "configured"


def test_every_ready_router_pod_must_have_started_after_the_configuration_was_made() -> None:
    found = read(with_second(lambda pod: None, started="2026-11-30T08:00:00Z"))
    assert found.state == "unknown" and "after its router started" in found.why


# What the configuration says.


@pytest.mark.parametrize(
    ("old", "new", "state", "word"),
    [
        ("disagg-profile-handler", "header-profile-handler", "absent", "header-profile-handler"),
        ("disagg-profile-handler", "single-profile-handler", "absent", "disagg-profile-handler"),
        ("disagg-profile-handler", "some-plugin", "absent", "disagg-profile-handler"),
        (
            "mode: max-role",
            "mode: max-role\n      revisionLabelKey: pod-template-hash",
            "absent",
            "pod-template",
        ),
        ("labelSelector: disaggregatedset.x-k8s.io/name=chat", "labelSelector: 'a in ('", "unknown", "scope"),
        (
            "labelSelector: disaggregatedset.x-k8s.io/name=chat",
            "labelSelector: no=pod",
            "absent",
            "leaves out",
        ),
        ("- decode\n", "", "absent", "require decode"),
    ],
)
def test_a_configuration_that_leaves_a_gap_is_not_configured(
    old: str, new: str, state: str, word: str
) -> None:
    text = example_config("chat")
    assert old in text
    found = read(world(text.replace(old, new)))
    assert found.state == state and word in found.why


def test_a_scope_that_cannot_be_read_takes_no_pod_in() -> None:
    text = example_config("chat").replace("disaggregatedset.x-k8s.io/name=chat", "'a in ('")
    assert not any(pod.in_scope for pod in the_pool(world(text)).pods)


def test_a_pool_is_the_set_s_whatever_label_its_screener_reads() -> None:
    text = example_config("chat").replace("mode: max-role", "mode: max-role\n      revisionLabelKey: other")
    assert [path.pools[0].name for path in paths_of_set(world(text), set_name="chat")] == ["chat"]


def test_two_pools_with_routers_of_their_own_draw_alone() -> None:
    seen = objects("front", "back", pods=PODS, config=example_config("chat"))
    for pool, role in zip(seen.pools, ("prefill", "decode"), strict=True):
        pool["spec"]["selector"]["matchLabels"] = {"disaggregatedset.x-k8s.io/role": role}
    assert len(derive_paths(seen)) == 2
    for name, other in (("front", "decode"), ("back", "prefill")):
        found = read(seen, name)
        assert found.state == "absent" and other in found.why and "draws alone" in found.why
        assert read(seen, name, set_name="chat").state == "absent"
        assert read(seen, name, roles_in_pool=False).state == "configured"


def test_pods_of_another_set_are_not_this_set_s_roles() -> None:
    seen = world()
    assert read(seen, set_name="chat").state == "configured"
    assert read(seen, set_name="code").state == "absent"


def test_a_role_is_known_by_the_set_s_name_for_it() -> None:
    pods = copy.deepcopy(PODS)
    for pod in pods:
        pod["metadata"]["labels"]["llm-d.ai/role"] = "prefill-decode"
    assert read(objects("chat", pods=pods)).state == "configured"


# What the public side answers.

PUBLIC = PoolSettings(public_url="http://public.example", model="m")
STAMP = "x-disagg-revision"


def answers(monkeypatch: pytest.MonkeyPatch, plain: Reply, pinned: Reply) -> None:
    def complete(self: Any, body: Json, *, headers: Mapping[str, str] | None = None) -> Reply:
        return pinned if headers else plain

    monkeypatch.setattr(screening.Line, "complete", complete)


@pytest.mark.parametrize(
    ("plain", "pinned", "verdict", "seen"),
    [
        (Reply(200, {STAMP: OLD}), Reply(200, {STAMP: NEW}), "guarded", True),
        (Reply(200, {STAMP: OLD}), Reply(503, {DROPPED_REASON: "rejected-no-endpoints"}), "open", True),
        (Reply(200), Reply(200), "cannot-tell", True),
        (Reply(200, {STAMP: "cccccccc"}), Reply(200, {STAMP: "cccccccc"}), "cannot-tell", True),
        (Reply(200), Reply(503, {DROPPED_REASON: "rejected-no-endpoints"}), "cannot-tell", True),
        (Reply(200, {STAMP: OLD}), Reply(200), "cannot-tell", True),
        (Reply(201), Reply(201), "cannot-tell", True),
        (Reply(401), Reply(401), "cannot-tell", False),
        (Reply(None), Reply(None), "cannot-tell", False),
    ],
)
def test_the_guard_is_proved_only_by_answers_that_this_router_stamped(
    monkeypatch: pytest.MonkeyPatch, plain: Reply, pinned: Reply, verdict: str, seen: bool
) -> None:
    answers(monkeypatch, plain, pinned)
    guard = prove_guard(the_pool(world()), PUBLIC)
    assert guard is not None and guard.verdict == verdict
    assert guard_was_seen(guard) is seen


def test_without_a_public_address_nothing_was_seen() -> None:
    assert prove_guard(the_pool(world()), PoolSettings()) is None and not guard_was_seen(None)
