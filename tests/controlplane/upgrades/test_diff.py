from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controlplane.upgrades.diff import roles_diff
from tests.controlplane.upgrades.given import pair, role, with_image

Json = dict[str, Any]
IMAGE = "roles[{}].spec.leaderWorkerTemplate.workerTemplate.spec.containers[engine].image"


def paths(before: list[Json], after: list[Json]) -> list[str]:
    return [change["path"] for change in roles_diff(before, after)["changes"]]


def test_nothing() -> None:
    assert roles_diff(pair(), pair()) == {
        "sentence": roles_diff(pair(), pair())["sentence"],
        "rolls": [],
        "late": [],
        "changes": [],
    }


def test_an_image_is_named_by_role_and_container() -> None:
    found = roles_diff(pair(), with_image(pair()))
    assert found["rolls"] == ["prefill", "decode"]
    assert [change["path"] for change in found["changes"]] == [
        IMAGE.format("prefill"),
        IMAGE.format("decode"),
    ]
    assert {change["after"] for change in found["changes"]} == {"registry.example/engine@sha256:2"}


def test_one_changed_role_rolls_every_role() -> None:
    after = [with_image(pair())[0], pair()[1]]
    found = roles_diff(pair(), after)
    assert paths(pair(), after) == [IMAGE.format("prefill")]
    assert found["rolls"] == ["prefill", "decode"]


def test_a_variable_that_comes_and_one_that_goes() -> None:
    before, after = (
        [role("prefill", 1, env={"A": "1", "B": "2"})],
        [role("prefill", 1, env={"B": "3", "C": "4"})],
    )
    changes = roles_diff(before, after)["changes"]
    inside = {change["path"].rpartition(".env")[2]: (change["before"], change["after"]) for change in changes}
    assert inside == {
        "[A]": ({"name": "A", "value": "1"}, None),
        "[B].value": ("2", "3"),
        "[C]": (None, {"name": "C", "value": "4"}),
    }


def test_order_alone_is_a_change_and_rolls() -> None:
    before = pair()
    after = [before[1], before[0]]
    found = roles_diff(before, after)
    assert found["changes"] == [
        {"path": "roles (order)", "before": ["prefill", "decode"], "after": ["decode", "prefill"]}
    ]
    assert found["rolls"] == ["decode", "prefill"]


def test_replicas_alone_roll_nothing() -> None:
    found = roles_diff(pair(4, 2), pair(5, 2))
    assert [change["path"] for change in found["changes"]] == ["roles[prefill].spec.replicas"]
    assert found["rolls"] == []


def test_a_name_given_twice_hides_nothing() -> None:
    before, after = [role("prefill", 1, env={"A": "1"})], [role("prefill", 1, env={"A": "1"})]
    for roles, first in ((before, "1"), (after, "9")):
        pod = roles[0]["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]
        pod["containers"][0]["env"].insert(0, {"name": "A", "value": first})
    (change,) = roles_diff(before, after)["changes"]
    assert change["path"].endswith("env") and change["after"][0]["value"] == "9"


def test_a_list_without_names_is_shown_whole() -> None:
    before, after = pair(), pair()
    after[0]["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]["args"] = [
        "serve",
        "n",
    ]
    (change,) = roles_diff(before, after)["changes"]
    assert (change["before"], change["after"]) == (["serve", "m"], ["serve", "n"])


# Without null, which the API server does not store.
plain = st.recursive(
    st.booleans() | st.integers(0, 3) | st.text("ab", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "y", "name"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(plain, plain)
def test_equal_gives_nothing_and_different_gives_something(one: Any, other: Any) -> None:
    before, after = [{"name": "a", "spec": {"x": one}}], [{"name": "a", "spec": {"x": other}}]
    assert paths(before, before) == []
    assert bool(paths(before, after)) == (before != after)
