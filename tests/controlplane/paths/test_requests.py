"""Headers of probes go where they are meant to go, and their values nowhere else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from controlplane.errors import Unavailable
from controlplane.paths.requests import Line, read_credential

HERE = "http://gateway.example:8081"
SECRET = "Bearer s3cr3t"


@pytest.fixture
def credential(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(settings, "LOCKSTEP_PROBE_CREDENTIALS", str(tmp_path))

    def write(document: Any) -> None:
        (tmp_path / "chat").write_text(document if isinstance(document, str) else json.dumps(document))

    return write


def test_headers_go_to_the_addresses_that_the_file_names(credential: Any) -> None:
    credential({"urls": [HERE + "/"], "headers": {"authorization": SECRET}})
    assert read_credential("chat", url=HERE) == {"authorization": SECRET}
    with pytest.raises(Unavailable) as refused:
        read_credential("chat", url="http://elsewhere.example:8081")
    assert refused.value.code == "no-probe-credential" and "s3cr3t" not in str(refused.value.as_problem())
    assert read_credential("", url=HERE) == {}


@pytest.mark.parametrize(
    "document",
    [
        "",
        "[]",
        {"authorization": SECRET},
        {"urls": [HERE]},
        {"urls": [HERE], "headers": {"authorization": SECRET + "\n"}},
        {"urls": [HERE], "headers": {"authori zation": SECRET}},
        {"urls": [HERE], "headers": {"authorization": 7}},
        {"urls": HERE, "headers": {"authorization": SECRET}},
    ],
)
def test_a_file_that_makes_no_sense_is_refused_without_its_content(credential: Any, document: Any) -> None:
    credential(document)
    with pytest.raises(Unavailable) as refused:
        read_credential("chat", url=HERE)
    assert "s3cr3t" not in str(refused.value.as_problem())


def test_a_value_that_cannot_be_sent_is_in_no_answer() -> None:
    reply = Line("http://127.0.0.1:9", headers={"authorization": SECRET + "\n"}).complete({})
    assert reply.status is None and "s3cr3t" not in reply.detail
