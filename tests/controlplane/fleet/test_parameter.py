"""Hold parameters as they are read from a cluster."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.fleet.parameter import UnreadableParameter, is_parameter, is_standing, parse_parameter
from policy.rollout.box import Box

KEYS = st.tuples(
    st.sampled_from("01"), st.text("0123456789abcdef", min_size=8, max_size=8), st.sampled_from(["p", "d-1"])
)


@given(st.dictionaries(KEYS, st.tuples(st.integers(0, 999), st.integers(0, 999)), max_size=6))
def test_what_is_written_is_read(bounds: dict[tuple[str, str, str], tuple[int, int]]) -> None:
    box = Box(
        {key: floor for key, (floor, _) in bounds.items()}, {key: top for key, (_, top) in bounds.items()}
    )
    data = {"namespace": "llm", "set": "chat", "operation": "9", "fence": "1000000000001", "old-roles": "{}"}
    found = parse_parameter(
        {"metadata": {"labels": {"lockstep.dev/hold": "true"}}, "data": data | box.as_data()}
    )
    assert found.box == box
    assert (found.standing, found.fence, found.operation) == (True, 1000000000001, "9")


@pytest.mark.parametrize("value", ["-1", " 1", "1.0", "", "0x1", "1\n", "١"])
def test_a_number_that_the_policy_could_not_read_is_refused_here_too(value: str) -> None:
    data = {"namespace": "llm", "set": "chat", "fence": "1"}
    for change in ({"fence": value}, {"floor.0.aaaa1111.prefill": value}):
        with pytest.raises(UnreadableParameter):
            parse_parameter({"metadata": {}, "data": data | change})


def test_which_config_maps_are_parameters_and_hold_a_set() -> None:
    data = {"namespace": "llm", "set": "chat"}
    held = {"metadata": {"name": "hold-llm.chat", "labels": {"lockstep.dev/hold": "true"}}, "data": data}
    forged = {"metadata": {"name": "other", "labels": {"lockstep.dev/hold": "true"}}, "data": data}
    released = {
        "metadata": {"name": "hold-llm.chat", "labels": {"lockstep.dev/hold": "released"}},
        "data": data,
    }
    plain = {"metadata": {"name": "kube-root-ca.crt"}}
    assert [is_parameter(each) for each in (held, forged, released, plain)] == [True, True, True, False]
    assert [is_standing(each) for each in (held, forged, released, plain)] == [True, True, False, False]
