"""The router's objects fit each other, and the program reads what they say."""

from __future__ import annotations

from typing import Any

from deploy.demo.router.config import example_config, load_config
from deploy.demo.router.flags import read_flags
from deploy.demo.router.manifests import config_map, epp_name, inference_objective, router_objects

Doc = dict[str, Any]


def objects(**more: Any) -> dict[str, Doc]:
    """Objects of a release by kind (roles by the last part of their name)."""
    docs = router_objects(release="qwen", namespace="serving", set_name="qwen-set", **more)
    found = {doc["kind"]: doc for doc in docs}
    found |= {f"Role {doc['metadata']['name'][9:]}": doc for doc in docs if doc["kind"] == "Role"}
    return found


def test_the_container_starts_with_what_is_mounted() -> None:
    found = objects()
    template = found["Deployment"]["spec"]["template"]["spec"]
    (container,), (volume,) = template["containers"], template["volumes"]
    options = read_flags(container["args"], {"POD_IP": "127.1.2.3"})
    assert (options.pool_name, options.pool_namespace, options.bind) == ("qwen", "serving", "127.1.2.3")
    assert options.json_logs
    mount = container["volumeMounts"][0]["mountPath"]
    folder, _, key = options.config_file.rpartition("/")
    assert folder == mount
    assert volume["configMap"]["name"] == found["ConfigMap"]["metadata"]["name"]
    config = load_config(found["ConfigMap"]["data"][key], allow_experimental=options.allow_experimental)
    assert config.screeners[0].scope.matches({"disaggregatedset.x-k8s.io/name": "qwen-set"})
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert ports == {
        "grpc": options.grpc_port,
        "grpc-health": options.grpc_health_port,
        "metrics": options.metrics_port,
    }


def test_pool_service_and_deployment_find_each_other() -> None:
    found = objects()
    picker = found["InferencePool"]["spec"]["endpointPickerRef"]
    service, deployment = found["Service"], found["Deployment"]["spec"]
    assert picker["name"] == service["metadata"]["name"] == epp_name("qwen") == "qwen-epp"
    assert picker["port"]["number"] in [port["port"] for port in service["spec"]["ports"]]
    assert service["spec"]["selector"].items() <= deployment["template"]["metadata"]["labels"].items()
    assert (
        deployment["selector"]["matchLabels"].items() <= deployment["template"]["metadata"]["labels"].items()
    )
    assert deployment["strategy"] == {"type": "Recreate"}
    assert deployment["replicas"] == 1
    assert found["ServiceAccount"]["metadata"]["name"] == deployment["template"]["spec"]["serviceAccountName"]
    assert found["InferencePool"]["spec"]["selector"]["matchLabels"] == {
        "disaggregatedset.x-k8s.io/name": "qwen-set",
        "leaderworkerset.sigs.k8s.io/worker-index": "0",
    }


def test_another_configuration_is_another_config_map_and_another_template() -> None:
    other = example_config("qwen-set").replace("max-role", "sum")
    one, two = objects(), objects(config=other)
    assert one["ConfigMap"]["immutable"]
    assert one["ConfigMap"]["metadata"]["name"] != two["ConfigMap"]["metadata"]["name"]
    assert one["Deployment"]["spec"]["template"] != two["Deployment"]["spec"]["template"]
    assert one["ConfigMap"] == config_map("qwen", "serving", example_config("qwen-set"))


def test_it_may_read_what_it_follows_and_write_nothing() -> None:
    found = objects()
    rules = found["Role sa"]["rules"] + found["Role non-sa"]["rules"]
    readable = {(group, name) for rule in rules for group in rule["apiGroups"] for name in rule["resources"]}
    assert readable >= {
        ("", "pods"),
        ("inference.networking.k8s.io", "inferencepools"),
        ("llm-d.ai", "inferenceobjectives"),
        ("inference.networking.x-k8s.io", "inferenceobjectives"),
    }
    assert all(set(rule["verbs"]) == {"get", "list", "watch"} for rule in rules)


def test_long_release_names_are_cut() -> None:
    assert epp_name("A" * 60) == "a" * 40 + "-epp"
    doc = inference_objective("vip", "serving", "qwen", 100)
    assert doc["spec"] == {
        "priority": 100,
        "poolRef": {"group": "inference.networking.k8s.io", "name": "qwen"},
    }
