"""A guard that stands as shipped, told from one that somebody made to let things pass."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from controlplane.holds.guards import TARGET, guard_problems, shipped_guards
from controlplane.kube.client import Kube
from controlplane.kube.errors import ObjectMissing
from controlplane.kube.resources import Resource

Json = dict[str, Any]


class Standing(Kube):
    """A cluster in which these guards stand, each as the API server would return it."""

    def __init__(self, guards: list[Json]) -> None:
        self.guards = {(guard["kind"], guard["metadata"]["name"]): guard for guard in guards}

    def get(self, resource: Resource, name: str, namespace: str | None = None) -> Json:
        """The guard, or 404."""
        if found := self.guards.get((resource.kind, name)):
            return found
        raise ObjectMissing("not found", status=404, details={"name": name})


def as_stored() -> list[Json]:
    """The shipped guards with the defaults that the API server (1.36) was seen to fill in."""
    stored = deepcopy(list(shipped_guards()))
    for guard in stored:
        if guard["kind"] == "ValidatingAdmissionPolicy":
            match = guard["spec"]["matchConstraints"]
            match |= {"matchPolicy": "Equivalent", "objectSelector": {}}
            match.setdefault("namespaceSelector", {})
            for rule in match["resourceRules"]:
                rule["scope"] = "*"
    return stored


def test_defaults_of_the_server_are_no_change() -> None:
    assert guard_problems(Standing(as_stored())) == []


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        (
            "ValidatingAdmissionPolicy",
            ("matchConstraints", "objectSelector"),
            {"matchLabels": {"never": "so"}},
        ),
        (
            "ValidatingAdmissionPolicy",
            ("matchConstraints", "excludeResourceRules"),
            [{"resources": ["*/scale"]}],
        ),
        ("ValidatingAdmissionPolicy", ("matchConstraints", "matchPolicy"), "Exact"),
        (
            "ValidatingAdmissionPolicyBinding",
            ("matchResources",),
            {"objectSelector": {"matchLabels": {"a": "b"}}},
        ),
        ("ValidatingAdmissionPolicyBinding", ("validationActions",), ["Audit"]),
    ],
)
def test_what_lets_writes_pass_is_told(kind: str, path: tuple[str, ...], value: Any) -> None:
    guards = as_stored()
    guard = next(one for one in guards if one["kind"] == kind)
    place = guard["spec"]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert guard_problems(Standing(guards)) == [
        f"{kind} {guard['metadata']['name']} differs from the shipped one"
    ]


def test_a_program_without_settings_finds_the_same_guards() -> None:
    shipped = shipped_guards(TARGET)
    assert shipped == shipped_guards()
    assert guard_problems(Standing(as_stored()), shipped) == []
    gone = f"{shipped[0]['kind']} {shipped[0]['metadata']['name']} is missing"
    assert gone in guard_problems(Standing([]), shipped)
