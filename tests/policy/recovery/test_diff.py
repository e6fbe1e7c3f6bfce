"""A combination against what is there: each part has a verdict, and says what differs."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from policy.recovery.diff import PartDiff, diff_combination

Json = dict[str, Any]


def role(name: str, replicas: int, image: str = "engine:v1") -> Json:
    """One entry of spec.roles."""
    pod = {"spec": {"containers": [{"name": "engine", "image": image}]}}
    return {"name": name, "spec": {"replicas": replicas, "leaderWorkerTemplate": {"workerTemplate": pod}}}


def document() -> Json:
    """A combination with one of everything."""
    return {
        "set": {"namespace": "serving", "name": "chat", "uid": "1"},
        "workload": {
            "roles": [role("prefill", 4), role("decode", 2)],
            "slices": 1,
            "placement": None,
            "templates": "sha256:1",
            "revision": "aaaa1111",
            "revisions": ["aaaa1111"],
            "images": {"decode": {"engine": {"image": "engine:v1", "image_ids": ["sha256:a"]}}},
        },
        "config_maps": {
            "prompts": {"data": {"a": "1"}, "binaryData": {}, "immutable": False},
            "absent": None,
        },
        "pools": [
            {
                "name": "chat",
                "router": {
                    "container": "epp",
                    "image": "router:1",
                    "image_ids": ["sha256:r"],
                    "config": {"kind": "config-map", "text": "plugins", "sure": True},
                },
            }
        ],
        "objectives": [{"name": "batch", "api": "llm-d.ai/v1alpha2", "spec": {"priority": -1}}],
        "routes": [
            {
                "namespace": "serving",
                "name": "chat",
                "rules": [[{"kind": "InferencePool", "namespace": "serving", "name": "chat", "weight": 1}]],
            }
        ],
        "scalers": [
            {"kind": "HorizontalPodAutoscaler", "name": "chat", "settings": {"spec": {"maxReplicas": 4}}}
        ],
        "transfer": {"prefill": {"engine": "vllm"}, "decode": None},
    }


def verdicts(live: Json) -> dict[str, PartDiff]:
    """Part name/kind → its diff."""
    return {f"{each.part} {each.name}": each for each in diff_combination(document(), live)}


def test_what_is_as_recorded_is_the_same() -> None:
    found = verdicts(document())
    assert found["workload chat"].verdict == "same-bits"
    assert found["router chat"].verdict == "same-bits"
    assert found["transfer decode"].verdict == "cannot-tell"
    assert all(each.equal for name, each in found.items() if name != "transfer decode")


@given(st.sampled_from(["config_maps", "pools", "objectives", "routes", "scalers"]))
def test_what_is_missing_is_said(part: str) -> None:
    live = document()
    live[part] = {} if part == "config_maps" else []
    differing = [each for each in diff_combination(document(), live) if each.verdict == "differs"]
    assert len(differing) == 1 and "does not exist" in " ".join(differing[0].what)


def test_every_change_names_itself() -> None:
    live = deepcopy(document())
    live["config_maps"]["prompts"]["data"] = {"a": "2", "b": "3"}
    live["pools"][0]["router"]["config"]["text"] = "other"
    live["objectives"][0]["spec"]["priority"] = 3
    live["routes"][0]["rules"][0][0]["weight"] = 0
    live["scalers"][0]["settings"]["spec"]["maxReplicas"] = 9
    live["transfer"]["prefill"] = {"engine": "sglang"}
    found = verdicts(live)
    assert found["config-map prompts"].what == ("key a", "key b")
    assert found["router chat"].what == ("configuration",)
    assert found["objective batch"].what == ("spec",)
    assert found["route serving/chat"].what == ("weight of chat is 0, recorded was 1",)
    assert found["scaler HorizontalPodAutoscaler chat"].what == ("settings",)
    assert found["transfer prefill"].what == ("engine",)


def test_a_workload_says_roles_order_groups_and_revisions() -> None:
    live = deepcopy(document())
    workload = live["workload"]
    workload["roles"] = [role("decode", 3), role("prefill", 4, "engine:v2"), role("encode", 1)]
    workload.update(templates="sha256:2", revision="bbbb2222", revisions=["aaaa1111", "bbbb2222"])
    what = verdicts(live)["workload chat"].what
    assert "the order of the roles" in what and "role encode was added" in what
    assert "groups of decode (3, recorded was 2)" in what and "template of prefill" in what
    assert "revisions with groups: aaaa1111, bbbb2222" in what
    assert verdicts({**live, "workload": None})["workload chat"].what == ("the set does not exist",)


def test_a_moved_tag_and_an_unsure_router_are_no_differences_that_could_be_put_back() -> None:
    live = deepcopy(document())
    live["workload"]["images"]["decode"]["engine"]["image_ids"] = ["sha256:b"]
    live["pools"][0]["router"]["config"]["sure"] = False
    found = verdicts(live)
    assert found["workload chat"].verdict == "same-template"
    assert found["router chat"].verdict == "cannot-tell"
    assert not found["workload chat"].equal


def test_the_same_templates_under_another_label_differ() -> None:
    live = deepcopy(document())
    live["workload"].update(revision="cccc3333", revisions=["cccc3333"])
    found = verdicts(live)["workload chat"]
    assert found.verdict == "differs" and "recorded was aaaa1111" in found.what[0]
