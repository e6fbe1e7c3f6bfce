"""The fingerprint: one document for one setting, another where something that must be equal differs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from policy.canonical import canonical_json
from policy.transfer.arguments import read_engine
from policy.transfer.facts import EngineFacts, LiveFacts
from policy.transfer.fingerprint import fingerprint_digest, transfer_fingerprint
from policy.transfer.models import MODELS
from tests.policy.transfer.engines import OTHER_DIGEST, arguments, connector, facts, script, sglang


def engine(*words: str) -> EngineFacts:
    return EngineFacts(read_engine(command=["vllm", "serve"], args=["m", *words], env=[], image="e:1"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("--block-size", "16"), ("--block_size=16",)),
        (("-tp=4", "--dtype=half"), ("--dtype", "half", "--tensor-parallel-size", "4")),
        (("--port=1", "--host=a", "--served-model-name", "x"), ("--port=2", "--api-key", "k")),
        (
            ("--kv-transfer-config", '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'),
            (
                "--kv-transfer-config.kv_connector",
                "NixlConnector",
                "--kv-transfer-config.kv_role",
                "kv_consumer",
            ),
        ),
    ],
)
def test_one_setting_in_two_spellings(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert fingerprint_digest(engine(*one)) == fingerprint_digest(engine(*other))


CHANGES: list[dict[str, Any]] = [
    {"image_digests": (OTHER_DIGEST,)},
    {"model_artifact": "other"},
    {"gpu_product": "B200"},
    {"flags": ("-tp=8",)},
    {"flags": ("--hf-overrides.rope_theta", "1.5")},
    {"flags": ("--revision", "d" * 40)},
    {"flags": ("--some-new-flag", "x")},
    {"env": [{"name": "VLLM_KV_CACHE_LAYOUT", "value": "NHD"}]},
    {"transfer": connector("decode", "NixlPushConnector")},
    {"flags": ("--config", "/etc/a.yaml"), "file_digests": {"/etc/a.yaml": "1"}},
]


@pytest.mark.parametrize("change", CHANGES)
def test_another_setting_gives_another_document(change: dict[str, Any]) -> None:
    given = {name: value for name, value in change.items() if name != "flags"}
    changed = facts("decode", *change.get("flags", ()), **given)
    assert fingerprint_digest(changed) != fingerprint_digest(facts("decode"))


def test_role_address_and_what_was_merely_read_are_not_in_it() -> None:
    plain = facts("decode")
    read_again = replace(
        plain, live=LiveFacts(engine="vllm", max_model_len=9), geometry=MODELS["gpt-oss-120b"]
    )
    assert (
        transfer_fingerprint(plain)
        == transfer_fingerprint(read_again)
        == transfer_fingerprint(facts("prefill"))
    )


def test_a_config_json_at_hand_changes_nothing() -> None:
    bare = EngineFacts(arguments("decode"), gpu_product="H100")
    assert transfer_fingerprint(bare) == transfer_fingerprint(replace(bare, geometry=MODELS["llama-3-70b"]))


def test_contents_of_scripts_and_files_count() -> None:
    one, other = (EngineFacts(script(f"vllm serve m {flag}")) for flag in ("-tp 1", "-tp 2"))
    assert fingerprint_digest(one) != fingerprint_digest(other)
    files = [
        facts("decode", "--config", "/a.yaml", file_digests={"/a.yaml": content}) for content in ("1", "2")
    ]
    assert fingerprint_digest(files[0]) != fingerprint_digest(files[1])


def test_what_is_unknown_is_said_in_the_document() -> None:
    found = transfer_fingerprint(EngineFacts(script("vllm serve m")))
    assert found["weights"] == {"unknown": "the loaded weights were not seen"}
    assert isinstance(found["factors"], dict)
    assert "unknown" in str(found["factors"]["model"])


def test_every_engine_and_any_text_has_a_document() -> None:
    words = ("--hf-overrides", '{"a": 0.1, "\\ud800": ["\\ud800", 1e400, null]}')
    for each in (sglang("decode"), engine(*words), EngineFacts(script("\ud800"))):
        assert canonical_json(transfer_fingerprint(each))
