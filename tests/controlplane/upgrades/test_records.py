from __future__ import annotations

import pytest

from controlplane.upgrades.records import model_artifact
from tests.controlplane.upgrades.given import role


@pytest.mark.parametrize(
    ("arguments", "model"),
    [
        (["serve", "meta/m-70b", "--port", "8000"], "meta/m-70b"),
        (["--model", "meta/m"], "meta/m"),
        (["--model=meta/m"], "meta/m"),
        (["serve", "--port", "8000"], None),
        (["--model"], None),
        ([], None),
    ],
)
def test_the_model_is_what_the_arguments_say(arguments: list[str], model: str | None) -> None:
    entry = role("prefill", 1)
    container = entry["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]
    container["args"] = arguments
    assert model_artifact([entry])["prefill"] == {"image": container["image"], "model": model}
    container["command"], container["args"] = arguments, None
    del container["args"]
    assert model_artifact([entry])["prefill"]["model"] == model
