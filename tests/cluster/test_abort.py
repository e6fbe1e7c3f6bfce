"""The way back, from everywhere: old revision whole, nothing of the new one, and nobody went short meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controlplane.operations.models import Operation
from controlplane.upgrades.models import UpdateRecord
from deploy.rig import Rig, until, workloads
from tests.cluster.driving import Lockstep, install_target, lockstep_on
from tests.cluster.four import LAST, Four, four, within_bounds
from tests.cluster.midway import HOLD, V1, look_often
from tests.cluster.watcher import Seen, observing

pytestmark = [pytest.mark.rig, pytest.mark.django_db(transaction=True)]
MakeSet = Callable[..., str]
Json = dict[str, Any]


@pytest.fixture
def lockstep(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lockstep]:
    """A fresh installation whose plans need no votes."""
    install_target(rig)
    look_often(monkeypatch)
    with lockstep_on(rig, environment="development") as running:
        yield running


@pytest.fixture
def upgrade(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> Four:
    """An upgrade of 4 and 2 groups, started."""
    return four(lockstep, namespace, make_set)


@pytest.fixture
def seen(lockstep: Lockstep, namespace: str) -> Iterator[Seen]:
    """An observer of its own."""
    with observing(lockstep.rig.kubeconfig("admin"), namespace, "model") as watched:
        yield watched


def abort(upgrade: Four, reason: str = "test") -> Json:
    """A person's abort."""
    return upgrade.verb("abort", reason=reason)


def images(upgrade: Four) -> list[str]:
    """The image of each role as the set says."""
    return [
        role["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]["image"]
        for role in upgrade.live_roles()
    ]


def grew(seen: Seen, revision: str, *, since: int) -> list[Any]:
    """Writes after the first `since` that gave a revision more groups than it had."""
    had: dict[Any, int] = {}
    more = []
    for number, (key, count) in enumerate(seen.writes):
        if number >= since and key[1] == revision and count > had.get(key, 0):
            more.append((key, had.get(key, 0), count))
        had[key] = count
    return more


# --- from every row


@pytest.mark.parametrize("row", range(1, LAST))
def test_from_every_row(upgrade: Four, seen: Seen, row: int) -> None:
    upgrade.stands_at(row)
    new, so_far = upgrade.new, len(seen.writes)
    abort(upgrade)
    upgrade.ends("aborted")
    upgrade.went_back(seen, row=row)
    assert not grew(seen, new, since=so_far), "the way back never lets the new side grow"
    assert images(upgrade) == [V1, V1]
    record = UpdateRecord.objects.get(operation=upgrade.operation).document
    after = record["confirmation"]["images"]
    assert {role: after[role]["engine"]["image"] for role in ("prefill", "decode")} == {
        "prefill": V1,
        "decode": V1,
    }
    back = upgrade.operation.steps.get(name="upgrades.reach_back", state="done")
    assert back.result["same_images"] is True
    assert {entry["after"] for entry in record["revisions"].values()} == {upgrade.old}


def test_after_the_last_old_group_went_it_is_a_rollout_back(upgrade: Four, seen: Seen) -> None:
    upgrade.stands_at(LAST)
    new = upgrade.new
    until(
        "the old sets to be gone",
        lambda: upgrade.old not in str(workloads.lws_of(upgrade.client(), upgrade.namespace, "model")),
    )
    abort(upgrade)
    upgrade.ends("aborted")
    upgrade.went_back(seen)
    assert seen.most(new, "prefill") == 4 and seen.most(new, "decode") == 2
    assert images(upgrade) == [V1, V1]


def test_after_everything_was_let_go_it_goes_back_without_a_hold(upgrade: Four, seen: Seen) -> None:
    upgrade.comes_to("finish")
    assert upgrade.client().get(upgrade.parameter_path)["metadata"]["labels"][HOLD] == "released"
    assert UpdateRecord.objects.get(operation=upgrade.operation).outcome == "succeeded"
    abort(upgrade)
    upgrade.ends("aborted")
    upgrade.went_back(seen)


def test_in_the_middle_of_a_row(upgrade: Four, seen: Seen) -> None:
    """The row is allowed, the controller is at it, nobody has looked yet."""
    upgrade.comes_to("reach_row", row=3)
    abort(upgrade)
    upgrade.ends("aborted")
    upgrade.went_back(seen)


# --- before anything moved


@pytest.mark.parametrize("step", ["open_hold", "prove_hold", "write_roles"])
def test_before_the_first_write(upgrade: Four, seen: Seen, step: str) -> None:
    upgrade.comes_to(step)
    generation = upgrade.client().get(upgrade.set_path)["metadata"]["generation"]
    abort(upgrade)
    upgrade.ends("aborted", limit_s=20)
    upgrade.went_back(seen)
    assert upgrade.client().get(upgrade.set_path)["metadata"]["generation"] == generation, (
        "nothing was written"
    )
    assert {key[1] for key, _ in seen.writes} == {upgrade.old}
    assert not upgrade.operation.steps.filter(name="upgrades.write_roles", state="done").exists()


def test_between_the_write_and_the_first_row(upgrade: Four, seen: Seen) -> None:
    upgrade.comes_to("read_revision")
    abort(upgrade)
    upgrade.ends("aborted")
    upgrade.went_back(seen)
    assert {key[1] for state in seen.states for key, count in state.items() if count} == {upgrade.old}


# --- twice, and while the world does not help


def test_a_second_abort_changes_nothing(upgrade: Four, seen: Seen) -> None:
    upgrade.stands_at(2)
    first = abort(upgrade)
    again = abort(upgrade, reason="still")
    assert (first["phase"], again["phase"]) == ("aborting", "aborting")
    upgrade.comes_to("reach_back")
    abort(upgrade, reason="and again")
    upgrade.ends("aborted")
    upgrade.went_back(seen)
    names = list(upgrade.operation.steps.filter(state="done").values_list("name", flat=True))
    assert names.count("upgrades.plan_abort") == names.count("upgrades.write_back") == 1
    refused = upgrade.lockstep.verb(upgrade.operation, "abort", {"reason": "once more"})
    assert (refused.status_code, refused.json()["code"]) == (409, "operation-finished")


@pytest.mark.parametrize("fault", ["the webhooks", "the manager"])
def test_while_the_webhooks_are_down_it_shows_what_blocks_it_and_goes_on_by_itself(
    upgrade: Four, seen: Seen, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr("controlplane.operations.outcomes.retry_delay", lambda attempts: 0.2)
    rig = upgrade.lockstep.rig
    break_it, mend_it = (
        (rig.break_webhooks, rig.mend_webhooks) if fault == "the webhooks" else (rig.stop_lws, rig.start_lws)
    )
    upgrade.stands_at(2)
    break_it()
    try:
        abort(upgrade)
        tries: set[str] = set()

        def shown() -> bool:
            now = upgrade.lockstep.state(upgrade.operation)
            assert now.state in {"working", "waiting"}, now.finding
            if "failed calling webhook" in (what := str(now.waits_for.get("what", ""))):
                tries.add(what.split("(")[1].split(")")[0])
            return "many failed" in tries

        upgrade.lockstep.until("more failures than a forward step gets", shown)
        assert "never given up" in upgrade.lockstep.state(upgrade.operation).waits_for["then"]
    finally:
        mend_it()
    upgrade.ends("aborted")
    upgrade.went_back(seen)


def test_old_groups_that_are_not_ready_are_waited_for_in_sight(upgrade: Four) -> None:
    upgrade.stands_at(4)
    client = upgrade.client("admin")
    selector = f"{workloads.NAME_LABEL}=model,{workloads.REVISION_LABEL}={upgrade.old}"
    workloads.set_pods_ready(client, upgrade.namespace, selector, ready=False)
    abort(upgrade)

    def waits() -> bool:
        now = upgrade.lockstep.state(upgrade.operation)
        upgrade.look()
        return f"revision {upgrade.old} to be complete" in now.waits_for.get("what", "")

    upgrade.lockstep.until("it says what it waits for", waits)
    assert upgrade.lockstep.state(upgrade.operation).phase == "aborting"
    assert client.get(upgrade.parameter_path)["metadata"]["labels"][HOLD] == "true", "not before they serve"
    workloads.set_pods_ready(client, upgrade.namespace, selector, ready=True)
    upgrade.ends("aborted")
    upgrade.went_back()


# --- somebody scales meanwhile


def scale(upgrade: Four, prefill: int) -> None:
    """Somebody writes other replicas into the set."""
    roles = upgrade.live_roles()
    roles[0]["spec"]["replicas"] = prefill
    upgrade.write_roles(roles)


def stands_scaled(upgrade: Four, prefill: int) -> None:
    """The old revision at the size that somebody asked for."""
    assert upgrade.lockstep.state(upgrade.operation).state == "aborted", upgrade.lockstep.story()
    client = upgrade.client("admin")
    assert workloads.wait_settled(client, upgrade.namespace, "model") == upgrade.old
    assert upgrade.counts() == {(upgrade.old, "prefill"): prefill, (upgrade.old, "decode"): 2}
    assert client.get(upgrade.parameter_path)["metadata"]["labels"][HOLD] == "released"
    assert images(upgrade) == [V1, V1]


@pytest.mark.parametrize("prefill", [6, 3])
def test_after_somebody_scaled(upgrade: Four, prefill: int) -> None:
    upgrade.stands_at(3)
    scale(upgrade, prefill)
    abort(upgrade)
    upgrade.ends("aborted")
    stands_scaled(upgrade, prefill)


@pytest.mark.parametrize("prefill", [6, 3])
@pytest.mark.parametrize("step", ["write_back", "reach_back"])
def test_while_somebody_scales(upgrade: Four, step: str, prefill: int) -> None:
    upgrade.stands_at(3)
    abort(upgrade)
    upgrade.comes_to(step)
    scale(upgrade, prefill)
    upgrade.ends("aborted")
    stands_scaled(upgrade, prefill)


def test_replicas_that_the_upgrade_itself_changed_go_back_too(
    lockstep: Lockstep, namespace: str, make_set: MakeSet, seen: Seen
) -> None:
    old = make_set()
    changes = {role: {"image": "registry.example/engine:v2"} for role in ("prefill", "decode")}
    changes["prefill"]["replicas"] = 5  # type: ignore[assignment]
    plan = lockstep.draft(lockstep.observe(namespace, "model"), {"roles": changes})
    assert plan["state"] == "ready", plan
    upgrade = Four(lockstep, namespace, lockstep.start(plan), old)
    upgrade.comes_to("raise_row", row=3)
    abort(upgrade)
    upgrade.ends("aborted")
    upgrade.went_back()
    within_bounds(seen, start={"decode": 2}, peaks={"decode": 4})


def test_somebody_else_who_writes_during_the_way_back_is_told_and_written_over(upgrade: Four) -> None:
    upgrade.stands_at(3)
    abort(upgrade)
    upgrade.comes_to("reach_back")
    upgrade.write_roles(upgrade.with_image("registry.example/engine:v3"))
    finding = upgrade.found("foreign-write")
    assert "during the abort" in finding["sentence"]
    upgrade.verb("retry", reason="stopped")
    upgrade.ends("aborted")
    upgrade.went_back()
    assert images(upgrade) == [V1, V1]


# --- stop


def test_the_way_back_can_be_stopped_and_goes_on_after_a_resume(upgrade: Four, seen: Seen) -> None:
    upgrade.stands_at(4)
    abort(upgrade)
    upgrade.comes_to("write_back")
    upgrade.verb("stop", reason="wait")
    upgrade.found("stopped")
    stood, writes = upgrade.counts(), len(seen.writes)
    assert stood == upgrade.at_row(4)
    upgrade.client("stranger").patch(upgrade.set_path, {"metadata": {"annotations": {"note": "look again"}}})
    upgrade.verb("resume", reason="go on")
    assert len(seen.writes) == writes
    upgrade.ends("aborted")
    upgrade.went_back(seen)


def test_a_stop_after_the_hold_was_let_go_leaves_none_behind(upgrade: Four) -> None:
    upgrade.comes_to("finish")
    upgrade.verb("stop", reason="wait")
    upgrade.found("stopped")
    assert upgrade.client().get(upgrade.parameter_path)["metadata"]["labels"][HOLD] == "true"
    upgrade.verb("resume", reason="go on")
    upgrade.ends("succeeded")
    assert upgrade.client().get(upgrade.parameter_path)["metadata"]["labels"][HOLD] == "released"


# --- the record


def test_the_operation_says_who_turned_it_round(upgrade: Four) -> None:
    upgrade.stands_at(1)
    abort(upgrade, reason="latency doubled")
    now = Operation.objects.get(pk=upgrade.operation.pk)
    assert now.memory["abort"] == {"by": "olga", "reason": "latency doubled"}
    upgrade.ends("aborted")
