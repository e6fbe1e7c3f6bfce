"""Programs that lag, stop, crash in the middle of a step, and webhooks that nobody answers."""

from __future__ import annotations

import pytest

from deploy.demo.emulator.controllers.names import GROUP_SETS, PODS
from deploy.demo.emulator.controllers.revision import set_revision
from deploy.demo.emulator.requests import Write
from deploy.demo.emulator.store import ApiProblem
from tests.demo.emulator.controllers.test_sets import run
from tests.demo.emulator.controllers.world import SET, SPACE, World, images, quick


def test_a_manager_that_crashes_between_two_patches_goes_on_from_there() -> None:
    async def scenario(made: World) -> None:
        made.make_set(images("v1"))
        old = await made.settles()
        roles = images("v2")
        new = set_revision(roles)
        # Two annotations, two new sets, one patch of the first row: then it is gone.
        made.cluster.lws.crash(after_writes=5, kind=GROUP_SETS)
        made.write_roles(roles)
        await made.until("it is gone", lambda: not made.cluster.lws.alive)
        await made.quiet(0.05)
        assert made.row(old, new) == ((4, 2), (1, 0)), "one role has moved, the other has not"
        assert await made.settles() == new

    run(scenario, times=quick(restart_s=0.4))


def test_a_beginning_that_a_crash_cuts_off_waits_for_ever() -> None:
    async def scenario(made: World) -> None:
        made.make_set(images("v1"))
        old = await made.settles()
        roles = images("v2")
        new = set_revision(roles)
        made.cluster.lws.crash(after_writes=3, kind=GROUP_SETS)
        made.write_roles(roles)
        await made.until("it is gone", lambda: not made.cluster.lws.alive)
        await made.until("it is back", lambda: made.cluster.lws.alive)
        await made.quiet()
        assert made.sizes() == {(old, "prefill"): 4, (old, "decode"): 2, (new, "prefill"): 0}
        made.admin.delete(GROUP_SETS, SPACE, f"{SET}-{new}-prefill")
        assert await made.settles() == new

    run(scenario)


def test_a_paused_manager_moves_nothing_and_refuses_writes() -> None:
    async def scenario(made: World) -> None:
        made.make_set(images("v1", 2, 1))
        old = await made.settles()
        made.server.parts.pause("lws")
        with pytest.raises(ApiProblem) as refused:
            made.write_roles(images("v2", 2, 1))
        assert refused.value.status == 500 and "vdisaggregatedset.kb.io" in refused.value.message
        made.admin.delete(PODS, SPACE, made.pods()[0]["metadata"]["name"])
        await made.quiet()
        assert len(made.pods()) == 2, "no pod of a group is made either"
        made.server.parts.resume("lws")
        assert await made.settles() == old

    run(scenario)


def test_broken_webhooks_hold_a_running_manager() -> None:
    async def scenario(made: World) -> None:
        made.make_set(images("v1"))
        old = await made.settles()
        roles = images("v2")
        new = set_revision(roles)
        made.write_roles(roles)
        await made.until("midway", lambda: made.row(old, new) == ((3, 2), (2, 1)))
        made.server.webhooks.up = False
        await made.quiet()
        stood = made.row(old, new)
        with pytest.raises(ApiProblem):
            made.touch()
        await made.quiet(0.3)
        assert made.row(old, new) == stood
        made.server.webhooks.up = True
        made.touch()
        assert await made.settles() == new

    run(scenario, times=quick(between_writes_s=0.002))


def test_a_stopped_manager_is_started_again() -> None:
    async def scenario(made: World) -> None:
        made.make_set(images("v1"))
        old = await made.settles()
        made.write_roles(images("v2"))
        new = set_revision(images("v2"))
        await made.until("midway", lambda: made.row(old, new) == ((3, 2), (2, 1)))
        await made.server.parts.stop("lws")
        await made.quiet()
        with pytest.raises(ApiProblem):
            made.touch()
        made.server.parts.start("lws")
        await made.until("it runs", lambda: made.cluster.lws.alive)
        assert await made.settles() == new

    run(scenario, times=quick(between_writes_s=0.002))


def test_a_manager_with_a_late_view_acts_on_what_was() -> None:
    async def scenario(made: World) -> None:
        made.make_set(images("v1"))
        old = await made.settles()
        made.cluster.lws.lag_s = 0.1
        made.touch("the lag begins with the next round")
        await made.quiet()
        loop_time = made.store.clock()
        made.write_roles(images("v2"))
        new = set_revision(images("v2"))
        await made.until("the new sets", lambda: (new, "decode") in made.sizes())
        assert (made.store.clock() - loop_time).total_seconds() >= 0.1
        assert await made.settles() == new and old not in made.revisions()
        made.cluster.lws.lag_s = 0.0
        made.write_roles(images("v1"))
        assert await made.settles() == old

    run(scenario)


def test_without_kubelets_nothing_gets_ready_and_a_rollout_waits() -> None:
    async def scenario(made: World) -> None:
        made.make_set(images("v1"))
        old = await made.settles()
        made.server.parts.pause("kubelets")
        made.write_roles(images("v2"))
        new = set_revision(images("v2"))
        await made.until("a first row", lambda: made.row(old, new) == ((4, 2), (1, 1)))
        await made.quiet()
        assert made.row(old, new) == ((4, 2), (1, 1))
        made.server.parts.resume("kubelets")
        assert await made.settles() == new

    run(scenario)


def test_a_refused_creation_of_one_role_is_the_same_wedge() -> None:
    """What an admission policy of somebody else would do."""

    async def scenario(made: World) -> None:
        made.make_set(images("v1"))
        old = await made.settles()
        new = set_revision(images("v2"))

        def refuse(write: Write) -> None:
            if write.operation == "CREATE" and write.name == f"{SET}-{new}-decode":
                raise ApiProblem(403, "Forbidden", "not this one")

        made.store.writes.checks.append(refuse)
        made.write_roles(images("v2"))
        await made.until("half of it", lambda: (new, "prefill") in made.sizes())
        await made.quiet()
        made.store.writes.checks.remove(refuse)
        made.touch()
        await made.quiet()
        assert made.sizes() == {(old, "prefill"): 4, (old, "decode"): 2, (new, "prefill"): 0}

    run(scenario)
