"""Rights and identities: who may do what is read from the stored roles, and asked in the server's words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from deploy.demo.emulator import Emulator
from deploy.rig import Api, ApiError
from tests.demo.emulator.conftest import MANIFESTS, install_target

Doc = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"


@pytest.fixture(scope="module", autouse=True)
def target(emulator: Emulator) -> None:
    install_target(emulator)


def refused(call: Callable[[], object]) -> ApiError:
    with pytest.raises(ApiError) as found:
        call()
    return found.value


def test_who_has_no_rule_for_it_may_not(emulator: Emulator) -> None:
    error = refused(lambda: emulator.client("nobody").get("/api/v1/namespaces/default/configmaps/x"))
    assert (error.status, error.reason) == (403, "Forbidden")
    assert error.message == (
        'configmaps "x" is forbidden: User "nobody" cannot get resource "configmaps" in API group "" '
        'in the namespace "default"'
    )
    error = refused(lambda: emulator.client("nobody").items("/api/v1/nodes"))
    assert error.message == (
        'nodes is forbidden: User "nobody" cannot list resource "nodes" in API group "" at the cluster scope'
    )
    error = refused(lambda: emulator.client("nobody").get("/metrics"))
    assert error.message == 'forbidden: User "nobody" cannot get path "/metrics"'


def test_a_kind_that_is_not_there_is_named_only_to_those_who_may_see_it(emulator: Emulator) -> None:
    where = "/apis/disaggregatedset.x-k8s.io/v1/disaggregatedsetrolescalers"
    assert refused(lambda: emulator.client("lockstep").items(where)).status == 404
    assert refused(lambda: emulator.client("nobody").items(where)).status == 403


def test_each_shipped_right_counts(emulator: Emulator) -> None:
    """Taken away one by one, as on the rig; a review says so at once."""
    for role in yaml.safe_load_all((MANIFESTS / "rbac.yaml").read_text()):
        if role["kind"] not in ("Role", "ClusterRole"):
            continue
        for rule in role["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        assert may(emulator, "lockstep", verb, group, resource), (resource, verb)
    assert not may(emulator, "lockstep", "delete", "", "configmaps")
    assert not may(emulator, "lockstep", "update", "leaderworkerset.x-k8s.io", "leaderworkersets")
    less = next(
        each
        for each in yaml.safe_load_all((MANIFESTS / "rbac.yaml").read_text())
        if each["kind"] == "ClusterRole"
    )
    less["rules"] = less["rules"][1:]
    emulator.apply(less)
    assert not may(emulator, "lockstep", "get", "disaggregatedset.x-k8s.io", "disaggregatedsets")
    install_target(emulator)
    assert may(emulator, "lockstep", "get", "disaggregatedset.x-k8s.io", "disaggregatedsets")


def may(
    emulator: Emulator, who: str, verb: str, group: str, resource: str, namespace: str = "lockstep"
) -> bool:
    asked = {"namespace": namespace, "group": group, "resource": resource, "verb": verb}
    answer = emulator.client(who).request(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        },
    )
    return bool(answer["status"]["allowed"])


def test_a_role_counts_in_its_namespace_only(emulator: Emulator) -> None:
    assert may(emulator, "lockstep", "list", "", "configmaps", "lockstep")
    assert not may(emulator, "lockstep", "list", "", "configmaps", "default")
    assert not may(emulator, "lockstep", "list", "", "configmaps", "")


def test_rules_by_name_by_subresource_and_by_wildcard(emulator: Emulator) -> None:
    rules = [
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["mine"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
        {"apiGroups": ["apps"], "resources": ["*/scale"], "verbs": ["*"]},
    ]
    subject = {"kind": "User", "name": "spare"}
    emulator.apply(
        [
            {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "few"}, "rules": rules},
            {
                "apiVersion": f"{RBAC}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "few"},
                "roleRef": {"kind": "ClusterRole", "name": "few"},
                "subjects": [subject],
            },
        ]
    )
    spare = emulator.client("spare")
    assert refused(lambda: spare.get("/api/v1/namespaces/default/configmaps/mine")).status == 404
    assert refused(lambda: spare.get("/api/v1/namespaces/default/configmaps/other")).status == 403
    assert refused(lambda: spare.get("/api/v1/namespaces/default/pods/p/log")).status == 404
    assert refused(lambda: spare.get("/api/v1/namespaces/default/pods/p")).status == 403
    assert refused(lambda: spare.get("/apis/apps/v1/namespaces/default/deployments/d/scale")).status == 404
    assert refused(lambda: spare.get("/apis/apps/v1/namespaces/default/deployments/d")).status == 403


def test_who_am_i(emulator: Emulator) -> None:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    where = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    seen = emulator.client("lws").request("POST", where, review)["status"]["userInfo"]
    assert seen["username"] == "system:serviceaccount:lws-system:lws-controller-manager"
    assert "system:masters" not in seen["groups"]
    seen = emulator.client("break-glass").request("POST", where, review)["status"]["userInfo"]
    assert "lockstep:break-glass" in seen["groups"]


def test_a_service_account_gets_a_token(emulator: Emulator) -> None:
    where = "/api/v1/namespaces/lockstep/serviceaccounts/lockstep/token"
    token = emulator.client().request("POST", where, {"spec": {}})["status"]["token"]
    review = {"spec": {"token": token}}
    answer = emulator.client().request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
    assert answer["status"]["user"]["username"] == "system:serviceaccount:lockstep:lockstep"


def test_only_who_may_read_the_parameters_makes_their_policy(emulator: Emulator) -> None:
    """A right that the product needs: it makes deleted guards again."""
    policies = [
        each
        for each in yaml.safe_load_all((MANIFESTS / "rollout-hold.yaml").read_text())
        if each["metadata"]["name"] == "lockstep-rollout-hold"
    ]
    client, lockstep = emulator.client("break-glass"), emulator.client("lockstep")
    for doc in policies:
        client.delete(client.path(doc))
    role = next(
        each
        for each in yaml.safe_load_all((MANIFESTS / "rbac.yaml").read_text())
        if each["kind"] == "ClusterRole"
    )
    less = {**role, "rules": [each for each in role["rules"] if each["resources"] != ["configmaps"]]}
    emulator.apply(less)
    error = refused(lambda: lockstep.create(policies[0]))
    assert error.status == 422 and 'must have "get" permission on all objects' in error.message
    emulator.apply(role)
    for doc in policies:
        assert lockstep.create(doc)["metadata"]["uid"]


def test_roles_of_a_binding_never_change(emulator: Emulator) -> None:
    where = f"/apis/{RBAC}/v1/clusterrolebindings/lockstep-target"
    body = {"roleRef": {"name": "cluster-admin"}}
    error = refused(lambda: emulator.client().patch(where, body))
    assert error.status == 422 and "cannot change roleRef" in error.message


def test_two_side_by_side_are_strangers(emulator: Emulator) -> None:
    with Emulator() as other:
        assert other.server != emulator.server
        stranger = Api(emulator.kubeconfig())
        stranger._server = other.server
        with pytest.raises(Exception, match="CERTIFICATE_VERIFY_FAILED"):
            stranger.items("/api/v1/nodes")
        folder = other.dir
        assert folder.exists()
    assert not folder.exists()
