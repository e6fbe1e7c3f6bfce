"""A budget of time for many questions: a source that is slow for each of them cannot keep a step past its limit."""

from __future__ import annotations

import json
import time

import pytest

from controlplane.metrics.client import Prometheus
from controlplane.metrics.errors import MetricsError
from tests.controlplane.metrics.fake_source import FakeSource, Reply

EMPTY = json.dumps({"status": "success", "data": {"resultType": "vector", "result": []}})


def test_all_questions_together_end_with_the_budget() -> None:
    with FakeSource() as source, Prometheus(source.url, timeout_s=5, budget_s=0.6) as client:
        source.replies.append(Reply(EMPTY, mute=0.25))
        begun, answered = time.monotonic(), 0
        with pytest.raises(MetricsError) as caught:
            for _ in range(50):
                client.instant("up")
                answered += 1
        assert 0.5 <= time.monotonic() - begun < 3.0 and 1 <= answered <= 2
        assert caught.value.code == "metrics-too-slow" and "0.6 s" in caught.value.sentence
        asked = len(source.asked)
        with pytest.raises(MetricsError):
            client.instant("up")
        assert len(source.asked) == asked, "what is asked after that is not even sent"


def test_without_a_budget_each_question_has_its_own_time() -> None:
    with FakeSource() as source, Prometheus(source.url, timeout_s=1) as client:
        source.replies.append(Reply(EMPTY, mute=0.3))
        for _ in range(5):
            assert client.instant("up").series == ()
