"""The wanted revision, on what the rig recorded and on everything that Go respells."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.fleet.names import INJECTED_LABELS, SET_REVISION, labels_of
from controlplane.fleet.target import Target, find_target, same_template, templates_digest
from tests.controlplane.fleet.world import make_child, recorded, role

Doc = dict[str, Any]
OLD = [role("prefill", 2), role("decode", 1)]
NEW = [role("prefill", 2, image="e:2"), role("decode", 1, image="e:2")]


def find(roles: list[Doc], children: list[Doc], **options: Any) -> Target:
    return find_target(roles=roles, children=children, places_itself=False, recorded={}, **options)


def revision(roles: list[Doc], label: str, born: float = 0, **options: Any) -> list[Doc]:
    return [make_child(each, label, 1, born=born, **options) for each in roles]


@pytest.mark.parametrize("name", ["settled", "waiting", "wedged"])
def test_the_recorded_sets_want_the_revision_that_the_controller_made(name: str) -> None:
    found = recorded(name)
    roles = found["set"]["spec"]["roles"]
    image = roles[0]["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]["image"]
    made = {
        labels_of(child)[SET_REVISION]
        for child in found["children"]
        if child["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]["image"] == image
    }
    assert find(roles, found["children"]) == Target(made.pop(), True)


def test_going_back_wants_the_older_revision() -> None:
    children = revision(OLD, "aaaa1111", born=0) + revision(NEW, "bbbb2222", born=100)
    assert find(NEW, children).label == "bbbb2222"
    assert find(OLD, children).label == "aaaa1111"


def test_nothing_fits_before_the_controller_has_acted() -> None:
    assert find(NEW, revision(OLD, "aaaa1111")) == Target("", True)
    assert find(NEW, []) == Target("", True)


def test_a_revision_with_one_role_missing_is_found_by_the_others() -> None:
    children = revision(OLD, "aaaa1111") + revision(NEW[:1], "bbbb2222", born=9)
    assert find(NEW, children).label == "bbbb2222"


def test_one_role_that_differs_is_another_revision() -> None:
    half = [NEW[0], OLD[1]]
    children = revision(OLD, "aaaa1111") + revision(half, "cccc3333") + revision(NEW, "bbbb2222")
    assert find(half, children) == Target("cccc3333", True)


def test_a_revision_with_a_role_that_the_set_no_longer_has_is_not_wanted() -> None:
    children = revision([*OLD, role("encode", 1)], "aaaa1111")
    assert find(OLD, children) == Target("", True)


def test_replicas_are_no_part_of_a_revision() -> None:
    assert find([role("prefill", 9), role("decode", 3)], revision(OLD, "aaaa1111")).label == "aaaa1111"


def test_order_of_roles_cannot_be_seen_so_a_record_decides() -> None:
    swapped = OLD[::-1]
    children = revision(OLD, "aaaa1111", born=0) + revision(swapped, "dddd4444", born=50)
    assert find(OLD, children) == Target("dddd4444", False)

    def with_record(**labels: str) -> Target:
        return find_target(roles=OLD, children=children, places_itself=False, recorded=labels)

    assert with_record(aaaa1111=templates_digest(OLD)) == Target("aaaa1111", True)
    # The other one is on record under another order: it is this one by exclusion.
    assert with_record(dddd4444=templates_digest(swapped)) == Target("aaaa1111", True)


def test_affinity_is_the_controllers_only_where_the_set_places_itself() -> None:
    children = revision(OLD, "aaaa1111")
    for child in children:
        child["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["affinity"] = {
            "podAffinity": {"x": [1]}
        }
    assert find(OLD, children).label == ""
    assert find_target(roles=OLD, children=children, places_itself=True, recorded={}).label == "aaaa1111"


def template(**container: Any) -> Doc:
    return {"size": 1, "workerTemplate": {"spec": {"containers": [{"name": "e", **container}]}}}


@pytest.mark.parametrize(
    ("stored", "made"),
    [
        ({"args": []}, {}),
        ({"env": [{"name": "A", "value": ""}]}, {"env": [{"name": "A"}]}),
        ({"stdin": False}, {}),
        ({"readinessProbe": {"initialDelaySeconds": 0}}, {"readinessProbe": {}}),
        ({"resources": {"limits": {"cpu": "1000m"}}}, {"resources": {"limits": {"cpu": "1"}}}),
        ({"resources": {"limits": {"gpu": 1}}}, {"resources": {"limits": {"gpu": "1"}}}),
        ({"resources": {"requests": {"memory": "1.5Gi"}}}, {"resources": {"requests": {"memory": "1536Mi"}}}),
        ({"env": [{"valueFrom": {"resourceFieldRef": {"resource": "x"}}}]},
         {"env": [{"valueFrom": {"resourceFieldRef": {"resource": "x", "divisor": "0"}}}]}),
    ],
)  # fmt: skip
def test_what_go_respells_is_the_same(stored: Doc, made: Doc) -> None:
    assert same_template(template(**stored), template(**made))


@pytest.mark.parametrize(
    ("stored", "made"),
    [
        ({"args": ["a"]}, {"args": ["b"]}),
        ({"args": ["a"]}, {}),
        ({"args": ["a", "b"]}, {"args": ["b", "a"]}),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "A", "value": "01"}]}),
        ({"env": [{"name": "A", "value": "1000m"}]}, {"env": [{"name": "A", "value": "1"}]}),
        ({"stdin": True}, {}),
        ({"resources": {"limits": {"cpu": "1"}}}, {"resources": {"limits": {"cpu": "2"}}}),
        ({"resources": {"limits": {"cpu": "1"}}}, {"resources": {}}),
        ({"resources": {"limits": {"cpu": "one"}}}, {"resources": {"limits": {"cpu": "1"}}}),
        ({"ports": [{"containerPort": 1}]}, {"ports": [{"containerPort": True}]}),
    ],
)
def test_what_differs_differs(stored: Doc, made: Doc) -> None:
    assert not same_template(template(**stored), template(**made))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab0", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "limits"]), inner, max_size=3)
    ),
    max_leaves=12,
)


def drop_blank(value: Any) -> Any:
    """What `omitempty` does to maps, as far as it goes."""
    if isinstance(value, dict):
        dropped = {key: drop_blank(each) for key, each in value.items()}
        return {key: each for key, each in dropped.items() if each not in (None, "", 0, False, [], {})}
    return [drop_blank(each) for each in value] if isinstance(value, list) else value


@given(spec=st.dictionaries(st.sampled_from(["a", "b", "limits"]), JSON, max_size=3))
def test_a_template_is_the_same_after_any_dropping_of_empty_values(spec: Doc) -> None:
    stored = {"workerTemplate": {"metadata": {"labels": {"mine": "1", "app": "mine"}}, "spec": spec}}
    made = {"workerTemplate": {"metadata": {"labels": {"mine": "1"}}, "spec": drop_blank(deepcopy(spec))}}
    made["workerTemplate"]["metadata"]["labels"] |= dict.fromkeys(INJECTED_LABELS, "x")
    assert same_template(stored, made)
    assert same_template(made, stored)


@given(first=JSON, second=JSON)
def test_the_comparison_is_symmetric_and_total(first: Any, second: Any) -> None:
    there = same_template(template(x=first), template(x=second))
    assert same_template(template(x=second), template(x=first)) is there
    assert same_template(template(x=first), template(x=first))
