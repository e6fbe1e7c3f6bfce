"""Admission policies beyond the shipped ones: how they are bound, what they see, what an error in them does."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from deploy.demo.emulator import Emulator
from deploy.demo.emulator.store import ApiProblem, service_account
from deploy.rig import Api, ApiError, until, workloads
from tests.demo.emulator.conftest import add_children, install_target

Doc = dict[str, Any]
_GROUP = "admissionregistration.k8s.io/v1"
_numbers = itertools.count(1)


class Rule:
    """A policy over ConfigMaps of one namespace, with its binding; gone with the test."""

    def __init__(self, client: Api, namespace: str) -> None:
        self.client, self.namespace = client, namespace
        self.name = f"policy-{next(_numbers)}"

    def stands(
        self, *, bound: Doc | None = None, operations: tuple[str, ...] = ("CREATE",), **spec: Any
    ) -> None:
        rule = {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": list(operations),
            "resources": ["configmaps"],
        }
        match = {
            "resourceRules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
        }
        metadata = {"name": self.name}
        self.client.apply(
            [
                {
                    "apiVersion": _GROUP,
                    "kind": "ValidatingAdmissionPolicy",
                    "metadata": metadata,
                    "spec": {"matchConstraints": match, **spec},
                },
                {
                    "apiVersion": _GROUP,
                    "kind": "ValidatingAdmissionPolicyBinding",
                    "metadata": metadata,
                    "spec": {"policyName": self.name, "validationActions": ["Deny"], **(bound or {})},
                },
            ]
        )

    def gone(self) -> None:
        for plural in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            self.client.delete(f"/apis/{_GROUP}/{plural}/{self.name}")


@pytest.fixture
def rule(client: Api, namespace: str) -> Iterator[Rule]:
    made = Rule(client, namespace)
    yield made
    made.gone()


def make(client: Api, namespace: str, name: str = "", **data: str) -> Doc:
    metadata = {"generateName": "c-", "namespace": namespace} | ({"name": name} if name else {})
    return client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


def refused(call: Callable[[], object]) -> ApiError:
    with pytest.raises(ApiError) as found:
        call()
    return found.value


def test_a_refusal_says_who_and_why(client: Api, namespace: str, rule: Rule) -> None:
    rule.stands(validations=[{"expression": "has(object.data.owner)", "message": "say whose it is"}])
    error = refused(lambda: make(client, namespace, "c"))
    assert (error.status, error.reason) == (422, "Invalid")
    said = (
        f"ValidatingAdmissionPolicy '{rule.name}' with binding '{rule.name}' denied request: say whose it is"
    )
    assert error.message == f'configmaps "c" is forbidden: {said}'
    assert error.body["details"]["causes"] == [{"message": said}]
    assert make(client, namespace, owner="me")
    assert make(client, "default"), "another namespace"


@pytest.mark.parametrize(("reason", "status"), [("Forbidden", 403), ("Invalid", 422), (None, 422)])
def test_the_reason_decides_the_status(
    client: Api, namespace: str, rule: Rule, reason: str | None, status: int
) -> None:
    rule.stands(validations=[{"expression": "false"} | ({"reason": reason} if reason else {})])
    error = refused(lambda: make(client, namespace))
    assert (error.status, error.reason) == (status, reason or "Invalid")
    assert "failed expression: false" in error.message


def test_variables_are_evaluated_only_where_they_are_touched(client: Api, namespace: str, rule: Rule) -> None:
    rule.stands(
        variables=[
            {"name": "number", "expression": "int(object.data.number)"},
            {"name": "twice", "expression": "variables.number * 2"},
        ],
        validations=[
            {
                "expression": "!has(object.data.number) || variables.twice < 10",
                "messageExpression": "'twice is ' + string(variables.twice)",
            }
        ],
    )
    assert make(client, namespace, other="x"), "the variables would fail, but nobody asks for them"
    assert make(client, namespace, number="4")
    assert "denied request: twice is 12" in refused(lambda: make(client, namespace, number="6")).message
    broken = refused(lambda: make(client, namespace, number="six"))
    assert broken.status == 422 and "resulted in error" in broken.message


def test_an_error_counts_as_the_policy_says(client: Api, namespace: str, rule: Rule) -> None:
    validations = [{"expression": "object.data.missing == 'x'"}]
    rule.stands(validations=validations)
    assert refused(lambda: make(client, namespace, a="b")).status == 422
    rule.stands(validations=validations, failurePolicy="Ignore")
    assert make(client, namespace, a="b")


def test_conditions_leave_writes_out(client: Api, emulator: Emulator, namespace: str, rule: Rule) -> None:
    rule.stands(
        matchConditions=[{"name": "who", "expression": "request.userInfo.username == 'stranger'"}],
        validations=[{"expression": "false"}],
    )
    assert make(client, namespace)
    assert refused(lambda: make(emulator.client("stranger"), namespace)).status == 422
    rule.stands(
        matchConditions=[
            {"name": "fails", "expression": "object.data.missing == 'x'"},
            {"name": "out", "expression": "request.operation == 'DELETE'"},
        ],
        validations=[{"expression": "false"}],
    )
    assert make(client, namespace, a="b"), "one that is false decides, whatever becomes of the others"


def test_deletions_and_changes_have_an_old_object(client: Api, namespace: str, rule: Rule) -> None:
    rule.stands(
        operations=("UPDATE", "DELETE"),
        validations=[
            {
                "expression": "request.operation == 'DELETE' ? object == null && oldObject.data.keep != 'yes' "
                ": object.data.keep == oldObject.data.keep"
            }
        ],
    )
    name = make(client, namespace, keep="yes")["metadata"]["name"]
    other = make(client, namespace, keep="no")["metadata"]["name"]
    where = f"/api/v1/namespaces/{namespace}/configmaps"
    assert refused(lambda: client.delete(f"{where}/{name}")).status == 422
    assert refused(lambda: client.patch(f"{where}/{name}", {"data": {"keep": "no"}})).status == 422
    assert client.patch(f"{where}/{name}", {"data": {"more": "x"}})
    client.delete(f"{where}/{other}")


PARAMETERS = {"apiVersion": "v1", "kind": "ConfigMap"}


def test_every_parameter_judges_and_none_may_mean_no(client: Api, namespace: str, rule: Rule) -> None:
    settings = f"settings-{namespace}"
    workloads.make_namespace(client, settings)

    def bind(action: str) -> Doc:
        selector = {"matchLabels": {"counts": "yes"}}
        ref = {"namespace": settings, "selector": selector, "parameterNotFoundAction": action}
        return {"paramRef": ref}

    spec = {
        "paramKind": PARAMETERS,
        "validations": [{"expression": "int(object.data.n) <= int(params.data.most)"}],
    }
    rule.stands(bound=bind("Deny"), **spec)
    error = refused(lambda: make(client, namespace, n="1"))
    assert "no params found for policy binding with `Deny` parameterNotFoundAction" in error.message
    rule.stands(bound=bind("Allow"), **spec)
    assert make(client, namespace, n="100")
    for name, most in (("a", "10"), ("b", "5")):
        parameter = {
            **PARAMETERS,
            "metadata": {"name": name, "namespace": settings, "labels": {"counts": "yes"}},
        }
        client.create({**parameter, "data": {"most": most}})
    assert make(client, namespace, n="5")
    assert refused(lambda: make(client, namespace, n="7")).status == 422
    client.patch(f"/api/v1/namespaces/{settings}/configmaps/b", {"metadata": {"labels": {"counts": "no"}}})
    assert make(client, namespace, n="7")
    rule.stands(
        bound={"paramRef": {"name": "a", "namespace": settings, "parameterNotFoundAction": "Deny"}}, **spec
    )
    assert refused(lambda: make(client, namespace, n="11")).status == 422


def test_a_policy_that_is_not_bound_or_only_warns_judges_nothing(
    client: Api, namespace: str, rule: Rule
) -> None:
    rule.stands(validations=[{"expression": "false"}], bound={"validationActions": ["Warn"]})
    assert make(client, namespace)
    rule.stands(validations=[{"expression": "false"}])
    assert refused(lambda: make(client, namespace))


def test_an_expression_that_is_none_is_refused_at_once(client: Api, namespace: str, rule: Rule) -> None:
    error = refused(lambda: rule.stands(validations=[{"expression": "object.data ==="}]))
    assert error.status == 422 and "spec.validations[0].expression" in error.message
    rule.stands(validations=[{"expression": "true"}])


def test_a_policy_may_take_effect_late(emulator: Emulator, client: Api, namespace: str, rule: Rule) -> None:
    emulator.delay_policies(0.5)
    try:
        assert make(client, namespace)  # the moment from which it is behind
        rule.stands(validations=[{"expression": "false"}])
        assert make(client, namespace), "not yet"
        until("the policy", lambda: _says_no(client, namespace))
        emulator.delay_policies(60)
        rule.stands(validations=[{"expression": "true"}])
        assert _says_no(client, namespace), "the old one still"
        emulator.delay_policies(0)
        assert make(client, namespace)
    finally:
        emulator.delay_policies(0)


def _says_no(client: Api, namespace: str) -> bool:
    try:
        make(client, namespace)
    except ApiError:
        return True
    return False


def test_controllers_are_judged_as_the_account_they_act_as(
    emulator: Emulator, client: Api, namespace: str
) -> None:
    install_target(emulator)
    client.create(workloads.disaggregated_set("model", namespace))
    child = f"model-{add_children(client, namespace)}-prefill"
    metadata = {"name": f"hold-{namespace}.model", "labels": {"lockstep.dev/hold": "true"}}
    data = {"namespace": namespace, "set": "model", "operation": "U-1", "fence": "1"}
    where = "/api/v1/namespaces/lockstep/configmaps"
    emulator.client("lockstep").request("POST", where, {"metadata": metadata, "data": data})

    def grow() -> str:
        acting = emulator.store.acting_as(service_account("lws-system", "lws-controller-manager"))
        try:
            kind = "leaderworkersets.leaderworkerset.x-k8s.io"
            acting.patch(kind, namespace, child, {"spec": {"replicas": 9}})
        except ApiProblem as problem:
            return f"{problem.status} {problem.message}"
        return ""

    assert "403 leaderworkersets.leaderworkerset.x-k8s.io" in (said := emulator.call(grow))
    assert "lockstep hold U-1" in said
