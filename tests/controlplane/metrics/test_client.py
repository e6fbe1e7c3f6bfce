"""One question, one answer or one error with a code: never a wait without end, a second try, or a shown secret."""

from __future__ import annotations

import gzip
import json
import logging
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.errors import BadInput, Unavailable
from controlplane.metrics import session
from controlplane.metrics.client import Prometheus
from controlplane.metrics.errors import MetricsError
from controlplane.metrics.reading import clock_offset
from tests.controlplane.metrics.fake_source import FakeSource, Reply

SECRET = "Bearer not-to-be-seen"


def document(kind: str, result: Any, **more: Any) -> str:
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}, **more})


ONE = document("vector", [{"metric": {"role": "decode"}, "value": [1700000000.5, "3"]}])


@pytest.fixture
def source() -> Iterator[FakeSource]:
    with FakeSource() as running:
        yield running


@pytest.fixture
def ask(source: FakeSource) -> Iterator[Callable[..., Prometheus]]:
    opened: list[Prometheus] = []

    def make(url: str = "", **options: Any) -> Prometheus:
        given = {"timeout_s": 2.0, "headers": {"Authorization": SECRET}} | options
        opened.append(Prometheus(url or source.url, **given))
        return opened[-1]

    yield make
    for client in opened:
        client.close()


def refusal(client: Prometheus, query: str = "up") -> MetricsError:
    """The error that a question gives; nothing of it, of its trace or of its facts shows the header."""
    with pytest.raises(MetricsError) as caught:
        client.instant(query)
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value.as_problem()) + repr(client)
    assert "not-to-be-seen" not in shown
    assert isinstance(caught.value, Unavailable) and caught.value.status == 503
    assert caught.value.next_action
    return caught.value


class TestAnswers:
    def test_an_instant_has_the_sources_times_and_numbers(self, source: FakeSource, ask: Any) -> None:
        source.answer(ONE)
        answer = ask().instant("up", at=1700000000.25)
        assert source.asked[-1].path == "/api/v1/query"
        assert source.asked[-1].query == {"query": "up", "time": "1700000000.250", "timeout": "2s"}
        assert source.asked[-1].headers["Authorization"] == SECRET
        (series,) = answer.series
        assert (series.labels, series.value, series.samples[0].at) == ({"role": "decode"}, 3, 1700000000.5)

    def test_a_path_before_the_api_is_kept(self, source: FakeSource, ask: Any) -> None:
        source.answer(ONE)
        ask(f"{source.url}/tenants/a/").instant("up")
        assert source.asked[-1].path == "/tenants/a/api/v1/query"

    def test_nan_and_infinities_are_no_numbers_and_are_told_apart(self, source: FakeSource, ask: Any) -> None:
        texts = ["NaN", "+Inf", "-Inf", "1e3"]
        rows = [{"metric": {"n": text}, "value": [1, text]} for text in texts]
        source.answer(document("vector", rows))
        found = ask().instant("up").series
        assert [one.value for one in found] == [None, None, None, 1000]
        assert [one.samples[0].text for one in found] == texts

    def test_warnings_and_infos_are_kept(self, source: FakeSource, ask: Any) -> None:
        source.answer(document("vector", [], warnings=["one store did not answer"], infos=["not a counter"]))
        answer = ask().instant("up")
        assert (answer.warnings, answer.infos) == (("one store did not answer",), ("not a counter",))

    def test_a_range_has_all_samples(self, source: FakeSource, ask: Any) -> None:
        points = [[100, "1"], [115, "NaN"], [130, "2"]]
        source.answer(document("matrix", [{"metric": {}, "values": points}]))
        answer = ask().range("up", start=100, end=130, step_s=15)
        assert [(one.at, one.value) for one in answer.series[0].samples] == [(100, 1), (115, None), (130, 2)]
        asked = source.asked[-1]
        assert (asked.path, asked.query["step"]) == ("/api/v1/query_range", "15")
        assert (asked.query["start"], asked.query["end"]) == ("100", "130")

    def test_native_histograms_are_left_out_loudly(self, source: FakeSource, ask: Any) -> None:
        source.answer(document("vector", [{"metric": {}, "histogram": [1, {"count": "2"}]}]))
        answer = ask().instant("up")
        assert answer.series == ()
        assert "1 native histograms" in answer.warnings[0]

    def test_the_clock_of_the_source(self, source: FakeSource, ask: Any) -> None:
        source.answer(document("scalar", [1_000_010.0, "1000010"]))
        ours = iter([1_000_000.0, 1_000_001.0])
        offset = clock_offset(ask(), clock=lambda: next(ours))
        assert (offset.offset_s, offset.uncertainty_s) == (9.5, 0.5)
        for wrong in (document("vector", []), document("scalar", [1, "NaN"])):
            source.answer(wrong)
            with pytest.raises(MetricsError):
                ask().now()


class TestFailures:
    @pytest.mark.parametrize(
        ("status", "body", "code"),
        [
            (401, "who are you", "metrics-refused"),
            (403, "<html>no</html>", "metrics-refused"),
            (404, "404 page not found", "metrics-bad-answer"),
            (429, "slow down", "metrics-failed"),
            (500, "oops", "metrics-failed"),
            (502, "<html>bad gateway</html>", "metrics-failed"),
            (503, json.dumps({"status": "error", "errorType": "timeout", "error": "x"}), "metrics-too-slow"),
            (
                400,
                json.dumps({"status": "error", "errorType": "bad_data", "error": "x"}),
                "metrics-query-refused",
            ),
            (
                422,
                json.dumps({"status": "error", "errorType": "execution", "error": "x"}),
                "metrics-query-refused",
            ),
        ],
    )
    def test_a_refusal_is_told_by_its_kind_and_asked_once(
        self, source: FakeSource, ask: Any, status: int, body: str, code: str
    ) -> None:
        source.answer(body, status=status)
        error = refusal(ask())
        assert error.code == code
        assert len(source.asked) == 1
        assert "html" not in error.sentence

    def test_what_prometheus_says_of_a_query_is_passed_on(self, source: FakeSource, ask: Any) -> None:
        said = {"status": "error", "errorType": "execution", "error": "found duplicate series " + "x" * 5000}
        source.answer(json.dumps(said), status=422)
        error = refusal(ask())
        assert "found duplicate series" in error.sentence and len(error.sentence) < 500

    @pytest.mark.parametrize(
        "body",
        [
            "<html>Please sign in</html>",
            "",
            "[]",
            "{}",
            '{"status": "success"}',
            '{"status": "success", "data": null}',
            '{"status": "success", "data": {"resultType": "vector", "result": 5}}',
            '{"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [1]}]}}',
            '{"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [1, 2]}]}}',
            '{"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [1, "x"]}]}}',
            '{"status": "success", "data": {"resultType": "poem", "result": []}}',
            '{"status": "error", "data": {"resultType": "vector", "result": []}}',
        ],
    )
    def test_what_is_no_answer_of_a_prometheus(self, source: FakeSource, ask: Any, body: str) -> None:
        source.answer(body)
        assert refusal(ask()).code == "metrics-bad-answer"

    def test_a_redirect_is_not_followed_and_the_header_stays_here(self, source: FakeSource, ask: Any) -> None:
        with FakeSource() as other:
            other.answer(ONE)
            source.answer("", status=307, headers={"Location": f"{other.url}/api/v1/query?query=up"})
            assert refusal(ask()).code == "metrics-bad-answer"
            assert not other.asked

    def test_nobody_there(self, ask: Any) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
        error = refusal(ask(f"http://127.0.0.1:{port}"))
        assert error.code == "metrics-unreachable"
        assert "refused" in error.sentence

    def test_a_name_that_does_not_exist(self, ask: Any) -> None:
        error = refusal(ask("http://nowhere.invalid"))
        assert (error.code, "resolved" in error.sentence) == ("metrics-unreachable", True)

    def test_plain_http_where_tls_is_asked(self, source: FakeSource, ask: Any) -> None:
        source.answer(ONE)
        error = refusal(ask(source.url.replace("http", "https")))
        assert (error.code, "TLS" in error.sentence) == ("metrics-unreachable", True)

    def test_a_ca_file_that_is_not_there(self, source: FakeSource, ask: Any, tmp_path: Path) -> None:
        error = refusal(ask(source.url.replace("http", "https"), verify=str(tmp_path / "none.crt")))
        assert error.code == "metrics-unreachable"

    def test_an_answer_that_breaks_off(self, source: FakeSource, ask: Any) -> None:
        source.answer(ONE, cut=True)
        error = refusal(ask())
        assert (error.code, "broke off" in error.sentence) == ("metrics-unreachable", True)

    @pytest.mark.parametrize(
        "slow",
        [
            {"mute": 5.0},
            {"dribble": 0.05},
            {"dribble": 0.05, "status": 307, "headers": {"Location": "/"}},
            {"dribble": 0.05, "status": 500},
        ],
    )
    def test_a_slow_one_ends_with_the_time_of_the_call(
        self, source: FakeSource, ask: Any, slow: dict[str, Any]
    ) -> None:
        source.answer(ONE, **slow)
        begun = time.monotonic()
        assert refusal(ask(timeout_s=0.5)).code == "metrics-too-slow"
        assert time.monotonic() - begun < 1.5
        assert len(source.asked) == 1

    def test_an_answer_that_is_too_large_also_when_it_is_packed(self, source: FakeSource, ask: Any) -> None:
        rows = [{"metric": {"n": str(number)}, "value": [1, "1"]} for number in range(5000)]
        large = document("vector", rows)
        source.answer(large)
        assert refusal(ask(max_bytes=100_000)).code == "metrics-too-large"
        packed = gzip.compress(large.encode())
        assert len(packed) < 100_000
        source.answer(packed, headers={"Content-Encoding": "gzip"})
        assert refusal(ask(max_bytes=100_000)).code == "metrics-too-large"
        assert len(ask().instant("up").series) == 5000

    def test_after_a_failure_the_same_client_asks_again(self, source: FakeSource, ask: Any) -> None:
        client = ask(timeout_s=0.5)
        source.replies.extend([Reply(ONE, mute=2), Reply(ONE, cut=True), Reply("x", 500), Reply(ONE)])
        assert [refusal(client).code for _ in range(3)] == [
            "metrics-too-slow",
            "metrics-unreachable",
            "metrics-failed",
        ]
        assert client.instant("up").series[0].value == 3


class TestAddresses:
    @pytest.mark.parametrize(
        "address",
        [
            "http://me:hunter2@prometheus.example",
            "https://me@prometheus.example/x",
            "http://:hunter2@prometheus.example",
            "http://@prometheus.example",
        ],
    )
    def test_credentials_in_an_address_are_refused_and_not_repeated(self, address: str) -> None:
        with pytest.raises(BadInput) as caught:
            Prometheus(address, timeout_s=1)
        assert caught.value.code == "metric-address-credentials"
        assert "hunter2" not in str(caught.value.as_problem())

    @pytest.mark.parametrize(
        "address",
        [
            "",
            "prometheus.example:9090",
            "ftp://prometheus.example",
            "file:///etc/passwd",
            "http://",
            "http://prometheus.example?token=x",
            "http://prometheus.example?",
            "http://prometheus.example/#x",
            "http://prometheus.example/a b",
            "http://prometheus.example\n",
            "http://prometheus.example:http",
            "http://[::1",
            "http://" + "x" * 600,
            "http://169.254.169.254/latest",
            "http://169.254.0.1:9090",
            "http://[fe80::1]",
            "http://[fe80::1%25eth0]",
            "http://[::ffff:169.254.169.254]",
            "http://[fd00:ec2::254]",
        ],
    )
    def test_what_is_no_address_of_a_prometheus(self, address: str) -> None:
        with pytest.raises(BadInput) as caught:
            Prometheus(address, timeout_s=1)
        assert caught.value.code == "metric-address-wrong"

    def test_a_name_that_leads_to_a_forbidden_address_is_found_out_when_connecting(
        self, source: FakeSource, ask: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Names and other spellings of an address show where they lead only then; nothing is sent."""
        source.answer(ONE)
        monkeypatch.setattr(session, "is_forbidden", lambda address: address == "127.0.0.1")
        error = refusal(ask(source.url.replace("127.0.0.1", "localhost")))
        assert (error.code, "link-local" in error.sentence) == ("metrics-unreachable", True)
        assert not source.asked

    @pytest.mark.parametrize(
        "headers",
        [{"X-Scope": "a\r\nX-Other: b"}, {"X-Scope": "not-to-be-seen\n"}, {"X Scope": "a"}, {"X-Scope": ""}],
    )
    def test_headers_that_cannot_be_sent_are_refused_without_their_value(
        self, headers: dict[str, str]
    ) -> None:
        with pytest.raises(BadInput) as caught:
            Prometheus("http://prometheus.example", timeout_s=1, headers=headers)
        assert caught.value.code == "metric-header-wrong"
        assert "not-to-be-seen" not in str(caught.value.as_problem())


def test_nothing_of_the_environment_is_used(
    source: FakeSource, ask: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A proxy would see every question; a .netrc would replace the header."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password else\n")
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    source.answer(ONE)
    ask().instant("up")
    assert source.asked[-1].headers["Authorization"] == SECRET


def test_logs_show_no_header(source: FakeSource, ask: Any, caplog: pytest.LogCaptureFixture) -> None:
    source.answer("x", status=500)
    with caplog.at_level(logging.DEBUG):
        refusal(ask())
    assert "not-to-be-seen" not in caplog.text
