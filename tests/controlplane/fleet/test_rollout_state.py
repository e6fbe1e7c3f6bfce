"""Each rollout state where it begins and where it ends."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.fleet import rollout_state
from controlplane.fleet.rollout_state import RolloutState, judge_set
from controlplane.fleet.view import derive_set
from tests.controlplane.fleet.world import START, make_child, make_pod, make_set, recorded, role

Doc = dict[str, Any]
OLD = {"prefill": role("prefill", 2), "decode": role("decode", 1)}
NEW = {"prefill": role("prefill", 2, image="e:2"), "decode": role("decode", 1, image="e:2")}
LIMIT = timedelta(minutes=10)


def judge(
    children: list[Doc],
    *,
    roles: list[Doc] | None = None,
    pods: list[Doc] | None = None,
    at: float = 60,
    parameters: list[Doc] | None = None,
    slices: int | None = None,
) -> RolloutState:
    ds = make_set(list(NEW.values()) if roles is None else roles, slices=slices)
    view = derive_set(ds, children, pods or [])
    return judge_set(view, now=START + timedelta(seconds=at), stuck_after=LIMIT, parameters=parameters or [])


def old(name: str, groups: int, **options: Any) -> Doc:
    return make_child(OLD[name], "aaaa1111", groups, **options)


def new(name: str, groups: int, **options: Any) -> Doc:
    return make_child(NEW[name], "bbbb2222", groups, **{"born": 20, **options})


def parameter(label: str = "true", **data: str) -> Doc:
    facts = {"namespace": "llm", "set": "chat", "operation": "7", "fence": "12", **data}
    return {"metadata": {"name": "hold-llm.chat", "labels": {"lockstep.dev/hold": label}}, "data": facts}


class TestSettledAndActive:
    def test_settled(self) -> None:
        state = judge([new("prefill", 2), new("decode", 1)])
        assert (state.name, state.reasons, state.waiting_since) == ("settled", {}, None)

    def test_drained_sets_that_are_not_deleted_yet_do_not_count(self) -> None:
        children = [old("prefill", 0), old("decode", 0), new("prefill", 2), new("decode", 1)]
        assert judge(children).name == "settled"

    @pytest.mark.parametrize(
        "children",
        [
            [old("prefill", 1), old("decode", 0), new("prefill", 2), new("decode", 1)],  # old groups left
            [new("prefill", 1), new("decode", 1)],  # under its size
            [new("prefill", 3), new("decode", 1)],  # above it
            [new("prefill", 2)],  # a role is not there
            [old("prefill", 2), old("decode", 1)],  # written, and the controller has not acted yet
            [],
        ],
    )
    def test_active(self, children: list[Doc]) -> None:
        assert judge(children).name == "active"

    def test_an_outside_scaler_decides_what_is_enough(self) -> None:
        roles = [role("prefill", 1, image="e:2", external=True), NEW["decode"]]
        assert judge([new("prefill", 5), new("decode", 1)], roles=roles).name == "settled"

    def test_one_slice_of_two(self) -> None:
        done = [new(name, size, slice_key="0") for name, size in (("prefill", 2), ("decode", 1))]
        assert judge(done, slices=2).name == "active"
        rest = [new(name, size, slice_key="1") for name, size in (("prefill", 2), ("decode", 1))]
        assert judge(done + rest, slices=2).name == "settled"


class TestWaiting:
    CHILDREN = (old("prefill", 2), old("decode", 1), new("prefill", 1, ready=0), new("decode", 1))

    def pods(self, since: float) -> list[Doc]:
        return [
            make_pod(self.CHILDREN[2], 0, ready=False, born=20, since=since),
            make_pod(self.CHILDREN[3], 0, born=20),
        ]

    def test_not_ready_yet_and_still_active(self) -> None:
        state = judge(list(self.CHILDREN), pods=self.pods(21))
        assert state.name == "not-ready-yet"
        assert state.reasons["not-ready-yet"] == ("slice 0: prefill of bbbb2222 has 0 of 1 group ready",)
        assert "active" in state.reasons
        assert state.waiting_since == START + timedelta(seconds=21)

    @pytest.mark.parametrize(("at", "name"), [(620, "not-ready-yet"), (621, "not-ready-yet"), (622, "stuck")])
    def test_stuck_is_waiting_longer_than_the_limit(self, at: float, name: str) -> None:
        assert judge(list(self.CHILDREN), pods=self.pods(21), at=at).name == name

    def test_old_groups_that_are_not_ready_hold_nothing_up(self) -> None:
        children = [old("prefill", 2, ready=0), old("decode", 1), new("prefill", 1), new("decode", 1)]
        assert judge(children, at=9000).name == "active"

    def test_a_settled_set_whose_group_failed_waits_too(self) -> None:
        children = [new("prefill", 2, ready=1), new("decode", 1)]
        pods = [make_pod(children[0], 0, born=20), make_pod(children[0], 1, ready=False, born=20, since=50)]
        assert judge(children, pods=pods).name == "not-ready-yet"
        assert judge(children, pods=pods, at=700).name == "stuck"

    def test_a_group_that_gets_no_pod_is_stuck_in_time(self) -> None:
        children = [new("prefill", 2, ready=1, changed=30), new("decode", 1)]
        pods = [make_pod(children[0], 0, born=20)]
        assert judge(children, pods=pods, at=620).name == "not-ready-yet"
        assert judge(children, pods=pods, at=640).name == "stuck"


class TestWedgedAndLeaked:
    def test_wedged_is_a_missing_role_of_a_revision_that_exists(self) -> None:
        children = [old("prefill", 2), old("decode", 1), new("prefill", 0)]
        state = judge(children, at=60)
        assert state.name == "wedged"
        assert state.reasons["wedged"] == ("slice 0: decode of bbbb2222 is missing and will not be created",)

    def test_while_the_controller_is_creating_them_it_is_no_wedge(self) -> None:
        assert judge([old("prefill", 2), old("decode", 1), new("prefill", 0)], at=24).name == "active"

    def test_without_old_groups_missing_ones_are_made(self) -> None:
        assert judge([old("prefill", 0), old("decode", 0), new("prefill", 2)]).name == "active"

    def test_the_recorded_wedge(self) -> None:
        found = recorded("wedged")
        view = derive_set(found["set"], found["children"], found["pods"])
        late = max(view.started.values()) + timedelta(seconds=30)
        assert judge_set(view, now=late, stuck_after=LIMIT).name == "wedged"

    def test_leaked_are_groups_of_roles_that_the_set_no_longer_names(self) -> None:
        roles = [role("context", 2, image="e:2"), role("generate", 1, image="e:2")]
        children = [make_child(each, "cccc3333", each["spec"]["replicas"], born=20) for each in roles]
        children += [old("prefill", 2), old("decode", 1)]
        state = judge(children, roles=roles)
        assert state.name == "leaked"
        assert [sentence.split()[2] for sentence in state.reasons["leaked"]] == [
            "chat-aaaa1111-decode",
            "chat-aaaa1111-prefill",
        ]

    def test_a_removed_role_that_is_still_being_drained_is_no_leak(self) -> None:
        encode = make_child(role("encode", 1), "aaaa1111", 1)
        children = [old("prefill", 1), old("decode", 1), encode, new("prefill", 2), new("decode", 1)]
        assert judge(children).name == "active"
        assert judge([old("prefill", 0), old("decode", 0), *children[2:]]).name == "leaked"


class TestHoldBreached:
    INSIDE = {
        "floor.0.aaaa1111.prefill": "1",
        "ceil.0.aaaa1111.prefill": "2",
        "ceil.0.aaaa1111.decode": "1",
        "ceil.0.bbbb2222.prefill": "1",
        "ceil.0.bbbb2222.decode": "1",
    }
    CHILDREN = (old("prefill", 2), old("decode", 1), new("prefill", 1), new("decode", 1))

    def test_inside_the_box(self) -> None:
        state = judge(list(self.CHILDREN), parameters=[parameter(**self.INSIDE)])
        assert state.name == "active"

    @pytest.mark.parametrize(
        "change",
        [
            {"floor.0.aaaa1111.prefill": "3", "ceil.0.aaaa1111.prefill": "4"},
            {"ceil.0.bbbb2222.prefill": "0"},
            {"floor.0.cccc3333.prefill": "1", "ceil.0.cccc3333.prefill": "1"},  # named, and not there
            {"ceil.0.bbbb2222.prefill": "many"},
            {"ceil.0.bbbb2222": "1"},
            {"fence": ""},
        ],
    )
    def test_outside_the_box_or_unreadable(self, change: dict[str, str]) -> None:
        found = parameter(**self.INSIDE)
        found["data"] |= change
        state = judge(list(self.CHILDREN), parameters=[found])
        assert state.name == "hold-breached"

    def test_a_revision_that_nobody_named_may_have_no_groups(self) -> None:
        third = make_child(role("prefill", 2, image="e:3"), "cccc3333", 1)
        state = judge([*self.CHILDREN, third], parameters=[parameter(**self.INSIDE)])
        assert state.reasons["hold-breached"] == ("slice 0, prefill of cccc3333: 1 groups, allowed 0..0",)

    def test_a_released_parameter_and_one_of_another_set_hold_nothing(self) -> None:
        released = parameter(label="released")
        other = parameter(set="other")
        assert judge(list(self.CHILDREN), parameters=[released, other]).name == "active"

    def test_it_outranks_everything_else(self) -> None:
        wedged = [old("prefill", 2), old("decode", 1), new("prefill", 5, ready=0)]
        state = judge(wedged, at=9000, parameters=[parameter()])
        assert state.name == "hold-breached"
        assert {"wedged", "stuck", "active"} <= set(state.reasons)


COUNTS = st.integers(0, 3)


@given(
    groups=st.tuples(COUNTS, COUNTS, COUNTS, COUNTS),
    present=st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()),
    unready=COUNTS,
    at=st.integers(0, 5000),
)
def test_every_situation_has_one_name_and_settled_means_done(
    groups: tuple[int, ...], present: tuple[bool, ...], unready: int, at: int
) -> None:
    makers = [(old, "prefill"), (old, "decode"), (new, "prefill"), (new, "decode")]
    children = [
        make(name, count, ready=max(0, count - unready))
        for (make, name), count, there in zip(makers, groups, present, strict=True)
        if there
    ]
    state = judge(children, at=at)
    assert state.name in rollout_state.STATES
    complete = present[2] and present[3] and groups[2:] == (2, 1) and unready == 0
    old_left = (present[0] and groups[0]) or (present[1] and groups[1])
    assert (state.name == "settled") == bool(complete and not old_left)
    assert ("stuck" in state.reasons) <= ("not-ready-yet" in state.reasons)
