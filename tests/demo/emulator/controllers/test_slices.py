"""A newer manager: slices, roles scaled from outside, status."""

from __future__ import annotations

from typing import Any

from deploy.demo.emulator.controllers.names import GROUP_SETS, SCALERS, SET_SLICE, SETS
from deploy.demo.emulator.controllers.revision import set_revision
from policy.rollout.box import Box
from tests.demo.emulator.controllers.test_sets import run
from tests.demo.emulator.controllers.world import ROLES, SET, SPACE, World, images

Doc = dict[str, Any]


def conditions(made: World) -> dict[str, str]:
    stored = made.store.get(SETS, SPACE, SET)
    return {each["type"]: each["status"] for each in (stored.get("status") or {}).get("conditions") or ()}


def test_every_slice_has_all_roles_and_the_set_says_how_it_is() -> None:
    async def scenario(made: World) -> None:
        made.make_set(images("v1", 2, 1), slices=2)
        label = await made.settles()
        names = {child["metadata"]["name"] for child in made.children()}
        assert names == {f"{SET}-{number}-{label}-{role}" for number in (0, 1) for role in ROLES}
        await made.until("available", lambda: conditions(made).get("Available") == "True")
        status = made.store.get(SETS, SPACE, SET)["status"]
        counts = {"replicas": 4, "readyReplicas": 4, "updatedReplicas": 4}
        assert (
            status["roleStatuses"][0] == {"name": "prefill", **counts} and status["observedGeneration"] == 1
        )
        made.write_roles(images("v2", 2, 1))
        await made.until(
            "progressing", lambda: conditions(made) == {"Available": "False", "Progressing": "True"}
        )
        assert await made.settles() == set_revision(images("v2", 2, 1))
        await made.until(
            "available again", lambda: conditions(made) == {"Available": "True", "Progressing": "False"}
        )
        made.admin.patch(SETS, SPACE, SET, {"spec": {"slices": 1}})
        await made.until("one slice", lambda: made.settled() and len(made.children()) == 2)

    run(scenario, slices=True)


def test_one_slice_is_held_while_the_other_goes() -> None:
    async def scenario(made: World) -> None:
        made.install_hold()
        made.make_set(images("v1", 2, 1), slices=2)
        old = await made.settles()
        roles = images("v2", 2, 1)
        new = set_revision(roles)
        counts = dict(zip(ROLES, (2, 1), strict=True))
        stands = {("1", old, name): count for name, count in counts.items()}
        free = {("0", label, name): 9 for label in (old, new) for name in ROLES}
        made.hold(Box(stands, {**stands, **free}).as_data(), fence=1)
        made.write_roles(roles)
        await made.until(
            "slice 0 is through",
            lambda: made.sizes(slice_key="0") == {(new, name): count for name, count in counts.items()},
        )
        await made.quiet()
        assert made.sizes(slice_key="1") == {
            **{(old, name): count for name, count in counts.items()},
            **{(new, name): 0 for name in ROLES},
        }
        free |= {("1", label, name): 9 for label in (old, new) for name in ROLES}
        made.hold(Box({}, free).as_data(), fence=2)
        made.touch()
        assert await made.settles() == new

    run(scenario, slices=True)


def test_children_of_an_older_manager_are_slice_0() -> None:
    async def scenario(made: World) -> None:
        made.make_set(images("v1", 2, 1), slices=1)
        label = await made.settles()
        made.server.parts.pause("lws")
        owner = made.store.get(SETS, SPACE, SET)
        for child in made.children():
            made.admin.delete(GROUP_SETS, SPACE, child["metadata"]["name"])
        made.server.webhooks.behind = lambda: True
        for child in [*owner["spec"]["roles"]]:
            adopted(made, owner, child, label)
        made.server.parts.resume("lws")
        await made.settles()
        assert sorted(child["metadata"]["name"] for child in made.children()) == [
            f"{SET}-{label}-decode",
            f"{SET}-{label}-prefill",
        ]
        made.admin.patch(SETS, SPACE, SET, {"spec": {"slices": 2}})
        await made.until("both slices say so", lambda: made.settled() and len(made.children()) == 4)
        assert all(SET_SLICE in child["metadata"]["labels"] for child in made.children())

    run(scenario, slices=True)


def adopted(made: World, owner: Doc, role: Doc, label: str) -> None:
    from deploy.demo.emulator.controllers.names import child_labels, child_name, owner_reference

    made.admin.create(
        {
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "metadata": {
                "name": child_name(SET, "0", label, role["name"], sliced=False),
                "namespace": SPACE,
                "labels": child_labels(SET, "0", label, role["name"], sliced=False),
                "ownerReferences": [owner_reference(owner, blocks=False)],
            },
            "spec": role["spec"],
        }
    )


def test_a_role_is_scaled_from_outside() -> None:
    async def scenario(made: World) -> None:
        roles = images("v1", 2, 1)
        roles[1]["scaling"] = {"mode": "External"}
        made.make_set(roles, slices=1)
        label = await made.settles()
        scaler = made.store.get(SCALERS, SPACE, f"{SET}-decode")
        assert scaler["spec"]["replicas"] == 1
        made.admin.scale(SCALERS, SPACE, f"{SET}-decode", 3)
        await made.until("three groups", lambda: made.sizes()[(label, "decode")] == 3)
        await made.until(
            "told", lambda: made.store.get(SCALERS, SPACE, f"{SET}-decode")["status"]["replicas"] == 3
        )
        again = images("v2", 2, 1)
        again[1]["scaling"] = {"mode": "External"}
        made.write_roles(again)
        new = set_revision(again)
        await made.until(
            "the new revision", lambda: made.sizes() == {(new, "prefill"): 2, (new, "decode"): 3}
        )
        made.write_roles(images("v2", 2, 1))
        await made.until("no scaler", lambda: made.store.find(SCALERS, SPACE, f"{SET}-decode") is None)
        await made.settles()

    run(scenario, slices=True)
