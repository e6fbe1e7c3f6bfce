"""A DisaggregatedSet of 0.9.0 on the emulator goes through its rollouts as on a real cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from deploy.demo.emulator.controllers.names import GROUP_SETS, PODS, SERVICES, STATEFUL_SETS
from deploy.demo.emulator.controllers.revision import set_revision
from deploy.rig import workloads
from deploy.rig.workloads import role
from policy.rollout.box import Box
from policy.rollout.planner import plan
from tests.demo.emulator.controllers.world import ROLES, SET, SPACE, Rows, World, images, quick, world

Doc = dict[str, Any]


def run(scenario: Callable[[World], Awaitable[None]], **options: Any) -> None:
    async def whole() -> None:
        async with world(**options) as made:
            await scenario(made)

    asyncio.run(whole())


def expected(*, initial: tuple[int, ...], target: tuple[int, ...], surge: int, unavailable: int) -> list[Any]:
    """The planner's rows, without how they were reached."""
    many = len(initial)
    rows = plan(initial=initial, target=target, surge=[surge] * many, unavailable=[unavailable] * many)
    return [(row.old, row.new) for row in rows]


# --- what a set becomes


def test_a_fresh_set_is_there_at_full_size() -> None:
    async def scenario(made: World) -> None:
        stored = made.make_set(images("v1"))
        label = await made.settles()
        assert label == set_revision(stored["spec"]["roles"]) and len(label) == 8
        for name in ROLES:
            child = made.store.get(GROUP_SETS, SPACE, f"{SET}-{label}-{name}")
            assert child["metadata"]["labels"] == {
                "app": f"{SET}-{name}",
                workloads.NAME_LABEL: SET,
                workloads.ROLE_LABEL: name,
                workloads.REVISION_LABEL: label,
            }
            (owner,) = child["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["uid"]) == ("DisaggregatedSet", stored["metadata"]["uid"])
            conditions = {each["type"]: each["status"] for each in child["status"]["conditions"]}
            assert conditions == {"Progressing": "False", "Available": "True"}
        assert len(made.pods()) == 6 and len({pod["status"]["podIP"] for pod in made.pods()}) == 6
        await made.until("private Services", lambda: len(services(made, label)) == 2)
        assert "status" not in made.store.get("disaggregatedsets.disaggregatedset.x-k8s.io", SPACE, SET)

    run(scenario)


def services(made: World, label: str) -> list[str]:
    found = made.store.list(SERVICES, SPACE, labels=f"{workloads.REVISION_LABEL}={label}")
    return [each["metadata"]["name"] for each in found]


def test_groups_of_several_pods() -> None:
    async def scenario(made: World) -> None:
        made.make_set([role("prefill", 2, size=2), role("decode", 1, size=1)])
        label = await made.settles()
        assert sorted(made.states()) == [
            f"{SET}-{label}-decode-0",
            *(f"{SET}-{label}-prefill-{rest}" for rest in ("0", "0-1", "1", "1-1")),
        ]
        worker = made.store.get(PODS, SPACE, f"{SET}-{label}-prefill-1-1")
        labels, lws = worker["metadata"]["labels"], "leaderworkerset.sigs.k8s.io"
        leader = made.store.get(PODS, SPACE, f"{SET}-{label}-prefill-1")["metadata"]
        assert labels[f"{lws}/group-index"] == "1" and labels[f"{lws}/worker-index"] == "1"
        assert labels[f"{lws}/group-key"] == leader["labels"][f"{lws}/group-key"]
        assert leader["labels"][f"{lws}/worker-index"] == "0"
        assert worker["metadata"]["annotations"][f"{lws}/leader-name"] == leader["name"]
        workers = made.store.get(STATEFUL_SETS, SPACE, leader["name"])
        assert workers["metadata"]["ownerReferences"][0]["uid"] == leader["uid"]
        env = {each["name"]: each["value"] for each in worker["spec"]["containers"][0]["env"]}
        assert env == {
            "LWS_LEADER_ADDRESS": f"{leader['name']}.{SET}-{label}-prefill.{SPACE}",
            "LWS_GROUP_SIZE": "2",
            "LWS_WORKER_INDEX": "1",
        }

    run(scenario)


def test_everything_goes_with_the_set() -> None:
    async def scenario(made: World) -> None:
        made.make_set([role("prefill", 2, size=2), role("decode", 1)])
        await made.settles()
        made.admin.delete("disaggregatedsets.disaggregatedset.x-k8s.io", SPACE, SET)
        await made.until("nothing is left", lambda: not made.pods() and not made.children())
        assert not made.store.list(STATEFUL_SETS, SPACE) and not made.store.list(SERVICES, SPACE)

    run(scenario)


def test_what_rolls_and_what_does_not() -> None:
    base = images("v1")
    label = set_revision(base)
    assert set_revision(images("v2")) != label
    assert set_revision(list(reversed(images("v1")))) != label, "order is part of it"
    assert set_revision(images("v1", prefill=9, surge=3, unavailable=1)) == label
    spelled = images("v1")
    spelled[0]["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"] = {}
    limits = spelled[0]["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0][
        "resources"
    ]
    limits["limits"]["nvidia.com/gpu"] = "1000m"
    assert set_revision(spelled) == label
    assert set_revision([*images("v1"), role("encode", 1)]) != label
    assert set_revision(images("v1", env={"A": "1", "B": "2"})) != set_revision(
        images("v1", env={"B": "2", "A": "1"})
    )


# --- rows


@pytest.mark.parametrize(
    ("before", "after", "surge", "unavailable"),
    [
        ((4, 2), (4, 2), 1, 0),
        ((6, 2), (6, 2), 1, 0),
        ((10, 10), (10, 10), 3, 0),
        ((3, 5), (5, 3), 1, 0),
        ((4, 4), (6, 6), 1, 0),
        ((4, 4), (4, 4), 0, 2),
    ],
)
def test_a_rollout_goes_through_the_planners_rows(
    before: tuple[int, int], after: tuple[int, int], surge: int, unavailable: int
) -> None:
    rows = expected(initial=before, target=after, surge=surge, unavailable=unavailable)

    async def scenario(made: World) -> None:
        pace = {"surge": surge, "unavailable": unavailable}
        made.make_set(images("v1", *before, **pace))
        old = await made.settles()
        roles = images("v2", *after, **pace)
        watched = Rows(made, old, set_revision(roles))
        made.write_roles(roles)
        seen = await watched.follow(lambda: made.settled() not in ("", old))
        # Roles are patched one by one: every row is seen, and between two rows only what lies between them.
        stops = [state for state in seen if state in rows]
        left = [row for row in rows if row not in stops]
        assert stops == [row for row in rows if row in stops]
        last_old = next(index for index, row in enumerate(rows) if not any(row[0]))
        assert all(rows.index(row) > last_old or row == rows[last_old] for row in left), (left, seen)
        for state in set(seen) - set(rows):
            assert any(
                between(state, *pair) for pair in zip(rows, [*rows[1:], rows[-1]], strict=True)
            ) or not any(state[0]), state

    run(scenario, nodes=None)


def between(state: Any, first: Any, second: Any) -> bool:
    """Whether every count is that of one of two rows, the new side first."""
    return all(
        value in (one, other)
        for mine, a, b in zip(state, first, second, strict=True)
        for value, one, other in zip(mine, a, b, strict=True)
    )


def test_under_the_hold_rows_come_one_by_one_and_nothing_moves_between() -> None:
    rows = expected(initial=(4, 2), target=(4, 2), surge=1, unavailable=0)

    async def scenario(made: World) -> None:
        made.install_hold()
        made.make_set(images("v1"))
        old = await made.settles()
        roles = images("v2")
        new = set_revision(roles)
        start = {("0", old, name): count for name, count in zip(ROLES, (4, 2), strict=True)}
        made.hold(Box(start, start).as_data(), fence=1)
        made.write_roles(roles)
        await made.until(
            "the new sets at 0", lambda: (new, "decode") in made.sizes() and (new, "prefill") in made.sizes()
        )
        await made.quiet()
        assert made.row(old, new) == ((4, 2), (0, 0))
        for number, (left, grown) in enumerate(rows[1:], start=2):
            floors = {("0", old, name): count for name, count in zip(ROLES, left, strict=True)}
            ceilings = {
                **start,
                **{("0", new, name): count for name, count in zip(ROLES, grown, strict=True)},
            }
            made.hold(Box(floors, ceilings).as_data(), fence=number)
            made.touch(str(number))
            await made.until(f"row {number}", lambda want=(left, grown): made.row(old, new) == want)
            await made.quiet(0.05)
            assert made.row(old, new) == (left, grown)
            if number == 2:
                assert services(made, new) == [], (
                    "both sides are ready, but the reconcile ends in a refused step"
                )
        await made.until("the end", lambda: made.settled() == new)

    run(scenario)


def test_a_refused_controller_backs_off_and_a_touch_wakes_it() -> None:
    async def scenario(made: World) -> None:
        made.install_hold()
        made.make_set(images("v1"))
        old = await made.settles()
        start = {("0", old, name): count for name, count in zip(ROLES, (4, 2), strict=True)}
        made.hold(Box(start, start).as_data(), fence=1)
        roles = images("v2")
        new = set_revision(roles)
        made.write_roles(roles)
        await made.until("the new sets", lambda: (new, "decode") in made.sizes())
        await made.quiet(0.3)
        made.hold(Box(start, {**start, **{("0", new, name): 1 for name in ROLES}}).as_data(), fence=2)
        await made.quiet(0.3)
        assert made.row(old, new) == ((4, 2), (0, 0)), "its back-off has not ended"
        made.touch()
        await made.until("the row", lambda: made.row(old, new) == ((4, 2), (1, 1)))

    run(scenario, times=quick(back_off_s=0.5))


# --- ways back and third templates


def test_the_old_roles_bring_the_old_label_back() -> None:
    async def scenario(made: World) -> None:
        made.make_set(images("v1"))
        old = await made.settles()
        made.write_roles(images("v2-never-ready"))
        new = set_revision(images("v2-never-ready"))
        await made.until("a first row", lambda: made.row(old, new) == ((4, 2), (1, 1)))
        await made.quiet()
        assert made.row(old, new) == ((4, 2), (1, 1)), "what is not ready holds the rollout"
        made.write_roles(images("v1"))
        assert await made.settles() == old
        made.write_roles(images("v2"))
        assert await made.settles() == set_revision(images("v2"))
        made.write_roles(images("v1"))
        assert await made.settles() == old

    run(scenario)


def test_a_third_template_drains_the_second_first() -> None:
    async def scenario(made: World) -> None:
        made.make_set(images("v1", 6, 6))
        first = await made.settles()
        second, third = (set_revision(images(tag, 6, 6)) for tag in ("v2", "v3"))
        made.write_roles(images("v2", 6, 6))
        await made.until("midway", lambda: made.row(first, second) == ((3, 3), (3, 3)))
        made.write_roles(images("v3", 6, 6))
        watched = Rows(made, first, second, third)
        seen = await watched.follow(lambda: made.settled() == third)
        gone = next(index for index, (_, middle, _) in enumerate(seen) if middle == (0, 0))
        assert all(oldest == (3, 3) for oldest, _, _ in seen[:gone]), seen

    run(scenario, times=quick(between_writes_s=0.002))


def test_renamed_roles_leak_the_old_sets() -> None:
    async def scenario(made: World) -> None:
        made.make_set(images("v1"))
        old = await made.settles()
        made.write_roles([role("fill", 2), role("generate", 1)])
        await made.until("the new roles", lambda: made.sizes().get((new_label(made), "generate")) == 1)
        await made.quiet()
        assert made.sizes()[(old, "prefill")] == 4 and made.sizes()[(old, "decode")] == 2

    run(scenario)


def new_label(made: World) -> str:
    stored = made.store.get("disaggregatedsets.disaggregatedset.x-k8s.io", SPACE, SET)
    return set_revision(stored["spec"]["roles"])


def test_a_beginning_that_broke_off_half_way_is_never_repaired() -> None:
    async def scenario(made: World) -> None:
        made.make_set(images("v1"))
        old = await made.settles()
        roles = images("v2")
        new = set_revision(roles)
        made.write_roles(roles)
        await made.until("midway", lambda: made.row(old, new) == ((3, 2), (2, 1)))
        made.admin.delete(GROUP_SETS, SPACE, f"{SET}-{new}-decode")
        await made.quiet()
        before = made.row(old, new)
        made.touch()
        await made.quiet()
        assert made.row(old, new) == before and (new, "decode") not in made.sizes()
        made.admin.delete(GROUP_SETS, SPACE, f"{SET}-{new}-prefill")
        assert await made.settles() == new, "all of them deleted, it begins again"

    run(scenario, times=quick(between_writes_s=0.002))


def test_a_role_at_zero_takes_the_whole_old_revision_along() -> None:
    async def scenario(made: World) -> None:
        made.make_set(images("v1"))
        old = await made.settles()
        watched = Rows(made, old, set_revision(images("v2")))
        # No controller comes between two writes of one moment.
        made.admin.patch(GROUP_SETS, SPACE, f"{SET}-{old}-decode", {"spec": {"replicas": 0}})
        made.write_roles(images("v2"))
        seen = await watched.follow(lambda: made.settled() not in ("", old))
        first = next(index for index, (left, _) in enumerate(seen) if left not in ((4, 2), (4, 0)))
        assert seen[first - 1 : first + 1] == [((4, 0), (1, 1)), ((0, 0), (1, 1))], seen

    run(scenario)


def test_a_role_that_somebody_emptied_midway_does_not_take_the_others_along() -> None:
    """The planner would give it a group back: that is not carried out, and the other role goes on by its rows."""

    async def scenario(made: World) -> None:
        made.make_set(images("v1"))
        old = await made.settles()
        new = set_revision(images("v2"))
        made.write_roles(images("v2"))
        await made.until("a first row", lambda: made.row(old, new) == ((4, 2), (1, 1)))
        watched = Rows(made, old, new)
        made.admin.patch(GROUP_SETS, SPACE, f"{SET}-{old}-decode", {"spec": {"replicas": 0}})
        seen = await watched.follow(lambda: made.settled() == new)
        assert list(dict.fromkeys(left[0] for left, _ in seen)) == [4, 3, 2, 1, 0], seen

    run(scenario, times=quick(between_writes_s=0.002))


def test_replicas_alone_are_applied_at_once_and_roll_nothing() -> None:
    async def scenario(made: World) -> None:
        made.make_set(images("v1"))
        old = await made.settles()
        made.write_roles(images("v1", 6, 3))
        await made.until(
            "six and three", lambda: made.settled() == old and made.sizes()[(old, "prefill")] == 6
        )
        made.admin.patch(GROUP_SETS, SPACE, f"{SET}-{old}-prefill", {"spec": {"replicas": 1}})
        await made.until("undone", lambda: made.sizes()[(old, "prefill")] == 6)

    run(scenario)


def test_events_say_what_was_done() -> None:
    async def scenario(made: World) -> None:
        made.make_set(images("v1", 2, 1))
        await made.settles()
        made.write_roles(images("v2", 2, 1))
        await made.settles()
        about = [
            each
            for each in made.store.list("events", SPACE)
            if each["involvedObject"]["kind"] == "DisaggregatedSet"
        ]
        assert {each["reason"] for each in about} == {
            "RollingUpdateStarted",
            "ScalingUp",
            "ScalingDown",
            "LWSDeleted",
        }

    run(scenario)
