"""The order of the parts of a restore: rules that hold for every picture, and the cases that people ask about."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policy.recovery.order import Options, Order, Picture, RouterPicture, order_parts

NAMES = st.lists(st.sampled_from(["a", "b", "c"]), max_size=2, unique=True).map(tuple)


@st.composite
def pictures(draw: st.DrawFn) -> Picture:
    """Any picture that can be: alone means that nothing else is there."""
    good = draw(st.sampled_from(["alone", "whole", "gone"]))
    routers = draw(
        st.lists(
            st.builds(
                RouterPicture,
                pool=st.sampled_from(["p", "q"]),
                differs=NAMES,
                screens_now=st.booleans(),
                screens_then=st.booleans(),
                serves_now=st.booleans(),
            ),
            max_size=2,
            unique_by=lambda each: each.pool,
        )
    )
    return Picture(
        good=good,
        others=() if good == "alone" else draw(NAMES),
        roles_differ=draw(NAMES),
        slices_differ=draw(st.booleans()),
        config_maps=draw(NAMES),
        routers=tuple(routers),
        objectives=draw(NAMES),
        routes=draw(NAMES),
        scalers=draw(NAMES),
        writers=draw(NAMES),
        groups={"prefill": 4, "decode": 2},
        there={"prefill": draw(st.integers(0, 4))},
        cold_start_s=draw(st.one_of(st.none(), st.floats(0, 1e4))),
    )


def places(order: Order) -> dict[str, int]:
    """Part name → place; a router may come twice, then its last place."""
    return {part.name: index for index, part in enumerate(order.parts)}


@given(pictures(), st.booleans())
def test_weights_come_after_the_workload_and_scalers_are_last(picture: Picture, accept: bool) -> None:
    order = order_parts(picture, Options(accept_outage=accept))
    found = places(order)
    for before in ("config-maps", "drain", "workload"):
        if before in found and "weights" in found:
            assert found[before] < found["weights"]
    if "scalers" in found:
        assert found["scalers"] == len(order.parts) - 1
    if "config-maps" in found:
        assert found["config-maps"] == 0


@given(pictures())
def test_nothing_is_done_for_what_is_equal(picture: Picture) -> None:
    order = order_parts(picture)
    found = places(order)
    assert ("config-maps" in found) == bool(picture.config_maps)
    assert ("objectives" in found) == bool(picture.objectives)
    assert ("scalers" in found) == bool(picture.scalers)
    assert ("weights" in found) == bool(picture.routes or "drain" in found)
    assert ("workload" in found) == (picture.good != "alone" or bool(picture.roles_differ))
    named = [pool for part in order.parts if part.name == "router" for pool in part.names]
    assert sorted(named) == sorted(each.pool for each in picture.routers if each.differs)
    assert len(named) == len(set(named)), "each router is written once"
    assert all(part.reason for part in order.parts)


@given(pictures(), st.booleans())
def test_no_revisions_are_mixed_without_screening_or_a_drain(picture: Picture, accept: bool) -> None:
    order = order_parts(picture, Options(accept_outage=accept))
    workload = next((p for p in order.parts if p.name == "workload"), None)
    if workload is None or not (workload.way == "anew" or picture.others):
        assert "drain" not in places(order)
        return
    before = order.parts[: order.parts.index(workload)]
    early = {pool for part in before if part.name == "router" for pool in part.names}
    drained = {pool for part in before if part.name == "drain" for pool in part.names}
    for router in picture.routers:
        screened = router.screens_now or (router.pool in early and router.screens_then and router.serves_now)
        assert screened or router.pool in drained
    assert order.outage == bool(drained)
    assert bool(drained and not accept) == ("no-screening" in {each.code for each in order.refusals})


@given(pictures())
def test_a_good_revision_that_is_whole_is_never_started_anew(picture: Picture) -> None:
    ways = {part.way for part in order_parts(picture).parts if part.name == "workload"}
    assert ways <= ({"anew"} if picture.good == "gone" else {"back"})
    if picture.good != "gone":
        assert order_parts(picture).estimate.beside == 0


@given(pictures())
def test_outside_writers_are_named_and_have_to_be_acknowledged(picture: Picture) -> None:
    order = order_parts(picture)
    writes = "workload" in places(order)
    refused = "writers-not-acknowledged" in {each.code for each in order.refusals}
    assert refused == (writes and bool(picture.writers))
    agreed = order_parts(picture, Options(writers=picture.writers))
    assert "writers-not-acknowledged" not in {each.code for each in agreed.refusals}


def test_router_comes_first_only_where_it_brings_the_screening() -> None:
    bare = RouterPicture("p", ("configuration",), screens_then=True, serves_now=True)
    order = order_parts(Picture(good="gone", others=("b",), routers=(bare,)))
    assert [part.name for part in order.parts] == ["router", "workload"]
    screened = RouterPicture("p", ("configuration",), screens_now=True, screens_then=True, serves_now=True)
    order = order_parts(Picture(good="gone", others=("b",), routers=(screened,)))
    assert [part.name for part in order.parts] == ["workload", "router"]
    misfit = RouterPicture("p", ("configuration",), screens_then=True)
    order = order_parts(Picture(good="gone", others=("b",), routers=(misfit,)), Options(accept_outage=True))
    assert [part.name for part in order.parts] == ["drain", "workload", "router", "weights"]


def test_slices_are_not_changed_and_a_router_that_cannot_be_written_is_said() -> None:
    stuck = RouterPicture("p", ("configuration",), screens_now=True, unwritable="no ConfigMap holds it")
    codes = [
        each.code for each in order_parts(Picture(good="gone", slices_differ=True, routers=(stuck,))).refusals
    ]
    assert codes == ["slices-differ", "router-not-writable"]


def test_the_estimate_says_what_has_to_start() -> None:
    picture = Picture(good="gone", groups={"prefill": 4, "decode": 2}, cold_start_s=90.4)
    estimate = order_parts(picture).estimate
    assert (estimate.to_start, estimate.beside, estimate.seconds) == (6, 6, 90)
    assert order_parts(Picture(good="alone", groups={"prefill": 4})).estimate.to_start == 0
    unseen = order_parts(Picture(good="gone", groups={"decode": 1})).estimate
    assert unseen.seconds is None and "not seen" in unseen.sentence
