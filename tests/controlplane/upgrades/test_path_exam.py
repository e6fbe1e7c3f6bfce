"""What a plan says of parity when the engines are to answer something else."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.paths.pool_settings import PoolSettings
from controlplane.upgrades.path_exam import _other_weights
from deploy.rig.workloads import role

Json = dict[str, Any]


def engines(*args: str) -> list[Json]:
    return [
        role(name, 1, image="vllm/vllm-openai:v0.30.0", args=["vllm", "serve", "acme/one", *args])
        for name in ("prefill", "decode")
    ]


@pytest.mark.parametrize(
    ("after", "differs"),
    [
        (engines(), ()),
        (engines("--max-num-seqs", "64"), ()),
        (engines("--quantization", "fp8"), ("quantization",)),
        (engines("--revision=abc", "--dtype", "float16"), ("revision", "dtype")),
    ],
)
def test_arguments_that_change_answers_are_named(after: list[Json], differs: tuple[str, ...]) -> None:
    golden = PoolSettings(probe_url="http://x", model="acme/one", reference="golden")
    assert _other_weights([golden], engines(), after) == differs
    direct = PoolSettings(probe_url="http://x", model="acme/one")
    assert _other_weights([direct, None], engines(), after) == ()
