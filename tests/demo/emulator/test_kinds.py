"""What the emulator makes of documents: the same as the rig did where it was recorded, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.demo.emulator import Emulator
from deploy.demo.emulator.respelling import quantity
from deploy.rig import Api, workloads
from policy.canonical import digest
from tests.cluster.programs import deployment, job
from tests.controlplane.fleet.record import TRICKY
from tests.demo.emulator.calls import refused

Doc = dict[str, Any]
RECORDED = Path(__file__).parents[2] / "controlplane" / "fleet" / "recorded" / "settled.json"


@pytest.fixture(scope="module")
def recorded() -> Doc:
    """A set of the rig with its children and pods."""
    found: Doc = json.loads(RECORDED.read_text())
    return found


@pytest.fixture(scope="module")
def newer() -> Any:
    """An emulator with the kinds of newer managers."""
    with Emulator(newer_sets=True) as running:
        yield running


def tricky_roles() -> list[Doc]:
    return [
        workloads.role("prefill", 2, size=2, pod=TRICKY, labels={"app": "mine", "team": "a"}),
        workloads.role("decode", 1, pod=TRICKY),
    ]


# --- as recorded


def test_a_set_is_stored_as_on_the_rig(client: Api, namespace: str, recorded: Doc) -> None:
    made = client.create(workloads.disaggregated_set("chat", namespace, tricky_roles()))
    assert made["spec"] == recorded["set"]["spec"]
    assert digest(made["spec"]["roles"]) == digest(recorded["set"]["spec"]["roles"])


def test_its_children_come_back_respelled_by_their_webhook(
    client: Api, namespace: str, recorded: Doc
) -> None:
    for child in recorded["children"]:
        role = next(each for each in tricky_roles() if child["metadata"]["name"].endswith(each["name"]))
        spec = role["spec"]
        template = spec["leaderWorkerTemplate"]["workerTemplate"]
        template["metadata"] = {"labels": worker_of(child)["metadata"]["labels"], "annotations": {}}
        metadata = {key: child["metadata"][key] for key in ("name", "labels")}
        body = {"apiVersion": workloads.LWS_GROUP, "kind": "LeaderWorkerSet", "spec": spec}
        made = client.create({**body, "metadata": {**metadata, "namespace": namespace}})
        assert made["spec"] == child["spec"]


def worker_of(child: Doc) -> Doc:
    found: Doc = child["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    return found


def test_a_pod_gets_the_defaults_of_the_rig(client: Api, namespace: str, recorded: Doc) -> None:
    pod = next(each for each in recorded["pods"] if each["metadata"]["name"] == "chat-72d71923-decode-0")
    spec = json.loads(json.dumps(TRICKY))
    wrapped = [
        {"name": "LWS_LEADER_ADDRESS", "value": "chat-72d71923-decode-0.chat-72d71923-decode.llm"},
        {"name": "LWS_GROUP_SIZE", "value": "1"},
        {"name": "LWS_WORKER_INDEX", "value": "0"},
    ]
    spec["containers"][0]["env"] = [*wrapped, *spec["containers"][0]["env"]]
    own = {key: pod["spec"][key] for key in ("hostname", "subdomain", "nodeName")}
    metadata = {"name": "p", "namespace": namespace}
    made = client.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec, **own}})
    assert made["spec"] == without_token(pod["spec"])
    assert made["status"] == {"phase": "Pending", "qosClass": pod["status"]["qosClass"]}


def without_token(spec: Doc) -> Doc:
    """Less the service account token that a real server mounts (see differences)."""
    less: Doc = json.loads(json.dumps(spec))
    less["volumes"] = [each for each in less["volumes"] if not each["name"].startswith("kube-api-access")]
    for container in less["containers"]:
        mounts = container["volumeMounts"]
        container["volumeMounts"] = [
            each for each in mounts if not each["name"].startswith("kube-api-access")
        ]
    return less


def test_writing_what_was_read_changes_nothing(client: Api, namespace: str) -> None:
    for doc in (
        workloads.disaggregated_set("chat", namespace, tricky_roles()),
        deployment(namespace),
        job(namespace, []),
    ):
        made = client.create(doc)
        assert client.replace(made) == made


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1.5Gi", "1536Mi"),
        (1, "1"),
        ("1000", "1k"),
        ("2Ti", "2Ti"),
        ("x", "x"),
    ],
)
def test_quantities_have_one_spelling(written: object, stored: str) -> None:
    assert quantity(written) == stored


# --- sets


def changed(namespace: str, change: Callable[[Doc], object]) -> Doc:
    doc = workloads.disaggregated_set("model", namespace)
    change(doc["spec"])
    return doc


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda spec: spec["roles"].pop(), "spec.roles in body should have at least 2 items"),
        (lambda spec: spec.pop("roles"), "spec.roles: Required value"),
        (lambda spec: spec["roles"][0].update(name="A"), "spec.roles[0].name in body should match"),
        (
            lambda spec: spec["roles"][0].update(name="decode"),
            'spec.roles[1]: Duplicate value: {"name":"decode"}',
        ),
        (
            lambda spec: spec["roles"][0]["spec"].update(replicas=0),
            "replicas must be zero for all roles or non-zero for all roles",
        ),
        (
            lambda spec: spec["roles"][0]["spec"].pop("leaderWorkerTemplate"),
            "spec.roles[0].spec.leaderWorkerTemplate: Required value",
        ),
        (
            lambda spec: spec["roles"][0]["spec"].update(replicas="4"),
            "spec.roles[0].spec.replicas in body must be of type integer",
        ),
        (
            lambda spec: spec["roles"][0]["spec"].update(startupPolicy="Never"),
            'supported values: "LeaderCreated", "LeaderReady"',
        ),
    ],
)
def test_a_set_against_its_schema_is_invalid(
    client: Api, namespace: str, change: Callable[[Doc], object], said: str
) -> None:
    error = refused(lambda: client.create(changed(namespace, change)))
    assert (error.status, error.reason) == (422, "Invalid")
    assert said in error.message
    assert error.message.startswith('DisaggregatedSet.disaggregatedset.x-k8s.io "model" is invalid: ')


def test_a_set_against_its_webhook_is_denied(client: Api, namespace: str) -> None:
    def partition(spec: Doc) -> None:
        spec["roles"][0]["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]["partition"] = 1

    error = refused(lambda: client.create(changed(namespace, partition)))
    assert error.status == 403 and "partition" in error.message
    assert 'admission webhook "vdisaggregatedset.kb.io" denied the request: ' in error.message
    assert client.create(workloads.disaggregated_set("still", namespace, surge=0, unavailable=0)), (
        "as in 0.9.0"
    )


def test_0_9_0_drops_what_it_does_not_know(client: Api, namespace: str) -> None:
    made = client.create(workloads.disaggregated_set("model", namespace, slices=2))
    assert "slices" not in made["spec"]
    assert refused(lambda: client.items(f"/apis/{workloads.GROUP}/disaggregatedsetrolescalers")).status == 404


def test_newer_sets_have_slices_and_scalers(newer: Emulator) -> None:
    client = newer.client()
    assert newer.lws_has_slices
    made = client.create(workloads.disaggregated_set("model", "default"))
    assert made["spec"]["slices"] == 1
    external = workloads.disaggregated_set("outside", "default")
    external["spec"]["roles"][1] |= {"scaling": {"mode": "External"}}
    external["spec"]["roles"][1]["spec"]["replicas"] = 0
    assert client.create(external)["spec"]["roles"][1]["scaling"] == {"mode": "External"}
    scaler = {"apiVersion": workloads.GROUP, "kind": "DisaggregatedSetRoleScaler"}
    made = client.create(
        {**scaler, "metadata": {"name": "outside-decode", "namespace": "default"}, "spec": {}}
    )
    assert made["spec"] == {"replicas": 0}
    scaled = client.patch(f"{client.path(made)}/scale", {"spec": {"replicas": 3}})
    assert scaled["spec"] == {"replicas": 3}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"surge": 0, "unavailable": 0}, "maxUnavailable"),
        ({"surge": "150%"}, "maxSurge"),
        ({"slices": 0}, "greater than or equal to 1"),
    ],
)
def test_newer_webhooks_ask_more(newer: Emulator, options: Doc, said: str) -> None:
    error = refused(lambda: newer.client().create(workloads.disaggregated_set("bad", "default", **options)))
    assert error.status in (403, 422) and said in error.message


# --- built-in kinds


def test_a_namespace_carries_its_name_as_a_label(client: Api, namespace: str) -> None:
    made = client.get(f"/api/v1/namespaces/{namespace}")
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": namespace}
    assert made["status"] == {"phase": "Active"}


def test_a_service_has_an_address_of_its_own(client: Api, namespace: str) -> None:
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": namespace}}
    assert refused(lambda: client.create({**body, "spec": {}})).status == 422, "no ports"
    made = client.create({**body, "spec": {"ports": [{"port": 80}]}})
    assert made["spec"]["clusterIP"].startswith("10.0.") and made["spec"]["ports"][0]["targetPort"] == 80
    error = refused(lambda: client.patch(client.path(made), {"spec": {"clusterIP": "10.0.9.9"}}))
    assert "field is immutable" in error.message
    headless = {**body, "metadata": {"name": "h", "namespace": namespace}, "spec": {"clusterIP": "None"}}
    assert client.create(headless)["spec"]["clusterIPs"] == ["None"]


def test_an_immutable_config_map_keeps_its_contents(client: Api, namespace: str) -> None:
    metadata = {"name": "c", "namespace": namespace}
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"a": "1"},
        "immutable": True,
    }
    where = client.path(client.create(body))
    for change in ({"data": {"a": "2"}}, {"immutable": False}):
        assert (
            "field is immutable when `immutable` is set"
            in refused(lambda change=change: client.patch(where, change)).message
        )
    assert client.patch(where, {"metadata": {"labels": {"a": "b"}}})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"selector": {"matchLabels": {"app": "other"}}}, "field is immutable"),
        ({"template": {"metadata": {"labels": {"app": "x"}}}}, "`selector` does not match template `labels`"),
        ({"template": {"spec": {"containers": []}}}, "spec.template.spec.containers: Required value"),
    ],
)
def test_deployments_keep_their_selector(client: Api, namespace: str, change: Doc, said: str) -> None:
    where = client.path(client.create(deployment(namespace)))
    assert said in refused(lambda: client.patch(where, {"spec": change})).message


def test_pods_and_jobs_keep_their_template(client: Api, namespace: str) -> None:
    where = client.path(client.create(job(namespace, [])))
    error = refused(
        lambda: client.patch(where, {"spec": {"template": {"spec": {"restartPolicy": "OnFailure"}}}})
    )
    assert "field is immutable" in error.message
    spec = {"containers": [{"name": "c", "image": "i"}]}
    metadata = {"name": "p", "namespace": namespace}
    where = client.path(
        client.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    )
    error = refused(lambda: client.patch(where, {"spec": {"hostNetwork": True}}))
    assert "pod updates may not change fields other than" in error.message
    assert client.patch(
        where, {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}, content_type=STRATEGIC
    )


STRATEGIC = "application/strategic-merge-patch+json"


def test_an_autoscaler_needs_bounds_in_order(client: Api, namespace: str) -> None:
    target = {"kind": "Deployment", "name": "app", "apiVersion": "apps/v1"}
    metadata = {"name": "h", "namespace": namespace}
    body = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata}
    bad = {"scaleTargetRef": target, "minReplicas": 5, "maxReplicas": 2}
    assert (
        "must be greater than or equal to `minReplicas`"
        in refused(lambda: client.create({**body, "spec": bad})).message
    )
    made = client.create({**body, "spec": {"scaleTargetRef": target, "maxReplicas": 2}})
    assert made["spec"]["minReplicas"] == 1 and "generation" not in made["metadata"]


def test_a_quota_keeps_pods_away(client: Api, namespace: str) -> None:
    hard = {"requests.nvidia.com/gpu": "2", "pods": "5"}
    metadata = {"name": "q", "namespace": namespace}
    client.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}})

    def pod(name: str, gpus: int) -> Doc:
        resources = {"limits": {"nvidia.com/gpu": gpus}}
        spec = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
        metadata = {"name": name, "namespace": namespace}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    client.create(pod("one", 1))
    error = refused(lambda: client.create(pod("two", 2)))
    assert error.status == 403 and "exceeded quota: q" in error.message
    client.create(pod("three", 1))


@pytest.mark.parametrize("name", ["Upper", "-a", "a_b", "a" * 254])
def test_names_are_names(client: Api, namespace: str, name: str) -> None:
    metadata = {"name": name, "namespace": namespace}
    error = refused(lambda: client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}))
    assert error.status == 422 and error.message.startswith(f'ConfigMap "{name}" is invalid: metadata.name')
