from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.errors import BadInput
from controlplane.upgrades.options import CHOICES, DEFAULTS, SECONDS, read_options
from policy.canonical import canonical_json


def test_nothing_sent_is_every_default() -> None:
    read = read_options({}, stable_for=30)
    assert read == {**DEFAULTS, "holds": ["first-complete-row", "last-old-groups"], "stable_for": 30}
    assert (read["hold_end"], read["hold_max_age"], read["promote"]) == ("abort", 4 * 3600, "automatic")
    assert read_options({}, stable_for=30) is not read, "nobody shares the defaults"
    assert DEFAULTS["holds"] == ["first-complete-row"], "and nobody has written into them"


@pytest.mark.parametrize(
    ("name", "choice"), [(name, choice) for name, all_ in CHOICES.items() for choice in all_]
)
def test_every_choice(name: str, choice: str) -> None:
    assert read_options({name: choice}, stable_for=30)[name] == choice


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"hold_ends": "abort"}, "hold_ends"),
        *[({name: "other"}, name) for name in CHOICES],
        *[({name: None}, name) for name in CHOICES],
        ({"hold_end": "promote"}, "hold_end"),
        *[
            ({name: value}, name)
            for name, (least, most) in SECONDS.items()
            for value in (least - 1, most + 1)
        ],
        *[({name: value}, name) for name in SECONDS for value in (True, "30", None, [], float("nan"))],
        ({"hold_votes": "no"}, "hold_votes"),
        ({"hold_votes": 0}, "hold_votes"),
        ({"holds": "half"}, "holds"),
        ({"holds": ["soon"]}, "holds"),
        ({"holds": [3]}, "holds"),
        ({"minimum_ready": []}, "minimum_ready"),
        ({"minimum_ready": {"decode": -1}}, "minimum_ready"),
        ({"minimum_ready": {"decode": True}}, "minimum_ready"),
        ({"minimum_ready": {"decode": "1"}}, "minimum_ready"),
    ],
)
def test_what_is_not_an_option_is_refused_by_field(sent: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInput) as refused:
        read_options(sent, stable_for=30)
    assert (refused.value.code, refused.value.field) == ("option-invalid", f"options.{field}")
    assert refused.value.sentence and refused.value.next_action


@given(
    st.dictionaries(
        st.sampled_from([*DEFAULTS, "stable_for", "other"]),
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(-5, 10**7),
            st.floats(),
            st.text(max_size=8),
            st.lists(st.text(max_size=4), max_size=3),
        ),
        max_size=4,
    )
)
def test_whatever_is_sent_is_read_or_refused_and_can_be_digested(sent: dict[str, Any]) -> None:
    try:
        read = read_options(sent, stable_for=0.5)
    except BadInput:
        return
    canonical_json(read)
    assert set(read) == {*DEFAULTS, "stable_for"}
    again = {name: float(value) if name in SECONDS else value for name, value in read.items()}
    assert read_options(again, stable_for=30) == read, "what was read reads the same again"


def test_the_last_old_groups_are_always_a_hold() -> None:
    for holds in ([], ["half"], ["every-row"]):
        assert "last-old-groups" in read_options({"holds": holds}, stable_for=30)["holds"]
