"""Where a cluster's numbers come from: who sets it, what is refused, and whom a worker sends which header."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rest_framework.test import APIClient

from controlplane.audit.actor import command
from controlplane.audit.models import AuditEvent
from controlplane.errors import BadInput, NotFound, Refused, StaleEdit, Unavailable
from controlplane.fleet.connections import connect_metrics
from controlplane.fleet.models import Cluster
from controlplane.fleet.services import register_cluster, set_metric_source
from controlplane.metrics.source import read_options
from tests.conftest import Cast
from tests.controlplane.metrics.fake_source import FakeSource

pytestmark = pytest.mark.django_db
Api = Callable[..., APIClient]
ACTOR = command("test")
URL = "https://prometheus.example:9090"
EMPTY = '{"status": "success", "data": {"resultType": "vector", "result": []}}'


@pytest.fixture
def cluster() -> Cluster:
    return register_cluster(name="east", context="rig", environment="staging", actor=ACTOR)


def give(cluster: Cluster, **changes: Any) -> Cluster:
    version = Cluster.objects.get(pk=cluster.pk).version
    return set_metric_source(cluster_id=cluster.pk, actor=ACTOR, **({"version": version} | changes))


class TestService:
    def test_it_is_stored_audited_and_makes_a_new_version(self, cluster: Cluster) -> None:
        options = {
            "prefix": "kserve_",
            "labels": {"set": "isvc", "role": "role"},
            "headers": ["X-Scope-OrgID"],
        }
        give(cluster, url=f"{URL}/", options=options)
        stored = Cluster.objects.get()
        assert (stored.metrics_url, stored.version) == (URL, 2)
        # What only repeats a default is left out.
        assert stored.metrics_options == options | {"labels": {"set": "isvc"}}
        row = AuditEvent.objects.get(action="cluster.set_metric_source")
        assert row.before == {"metrics_url": "", "metrics_options": {}}
        assert row.after["metrics_url"] == URL

    def test_what_is_left_out_stays_and_nothing_new_is_no_edit(self, cluster: Cluster) -> None:
        give(cluster, url=URL, options={"prefix": "kserve_"})
        give(cluster, options={"prefix": ""})
        assert (Cluster.objects.get().metrics_url, Cluster.objects.get().metrics_options) == (URL, {})
        give(cluster, url=URL)
        assert Cluster.objects.get().version == 3
        assert AuditEvent.objects.filter(action="cluster.set_metric_source").count() == 2
        give(cluster, url="")
        assert Cluster.objects.get().metrics_url == ""

    def test_a_stale_edit_and_an_unknown_cluster(self, cluster: Cluster) -> None:
        give(cluster, url=URL)
        with pytest.raises(StaleEdit):
            give(cluster, url="", version=1)
        with pytest.raises(NotFound):
            set_metric_source(cluster_id=0, version=1, url=URL, actor=ACTOR)

    @pytest.mark.parametrize(
        ("url", "code"),
        [
            ("https://me:word@prometheus.example", "metric-address-credentials"),
            ("http://169.254.169.254", "metric-address-wrong"),
            ("gopher://prometheus.example", "metric-address-wrong"),
            ("https://prometheus.example/?token=x", "metric-address-wrong"),
        ],
    )
    def test_an_address_that_is_refused_is_in_no_row(self, cluster: Cluster, url: str, code: str) -> None:
        with pytest.raises(BadInput) as caught:
            give(cluster, url=url)
        assert (caught.value.code, caught.value.field) == (code, "metrics_url")
        assert Cluster.objects.get().metrics_url == ""
        assert not AuditEvent.objects.filter(action="cluster.set_metric_source").exists()

    @pytest.mark.parametrize(
        ("options", "field"),
        [
            ({"password": "x"}, "metrics_options.password"),
            ({"prefix": "kserve-"}, "metrics_options.prefix"),
            ({"prefix": 'a{b="'}, "metrics_options.prefix"),
            ({"router_prefix": 5}, "metrics_options.router_prefix"),
            ({"labels": {"uid": "uid"}}, "metrics_options.labels.uid"),
            ({"labels": {"role": "le"}}, "metrics_options.labels.role"),
            ({"labels": {"role": "my-role"}}, "metrics_options.labels.role"),
            ({"labels": {"role": "pod"}}, "metrics_options.labels"),
            ({"labels": ["role"]}, "metrics_options.labels"),
            ({"headers": {"Authorization": "Bearer x"}}, "metrics_options.headers"),
            ({"headers": ["Authorization: Bearer x"]}, "metrics_options.headers"),
            ({"headers": ["A", "a"]}, "metrics_options.headers"),
            ({"headers": [f"A-{number}" for number in range(11)]}, "metrics_options.headers"),
            ({"verify_tls": "no"}, "metrics_options.verify_tls"),
        ],
    )
    def test_options_that_make_no_sense(self, cluster: Cluster, options: dict[str, Any], field: str) -> None:
        with pytest.raises(BadInput) as caught:
            give(cluster, options=options)
        assert (caught.value.code, caught.value.field) == ("metric-options-wrong", field)

    def test_options_come_back_as_the_source_that_they_describe(self) -> None:
        source = read_options(
            {"router_prefix": "inference_", "verify_tls": False, "labels": {"pod": "pod_name"}}
        )
        assert (source.router_prefix, source.verify_tls, source.prefix) == ("inference_", False, "")
        assert (source.labels["pod"], source.labels["role"]) == ("pod_name", "role")


class TestApi:
    def test_an_administrator_sets_it_under_the_version_that_they_saw(
        self, users: Cast, api: Api, cluster: Cluster
    ) -> None:
        path = f"/api/v1/clusters/{cluster.pk}"
        seen = api(users.admin).get(path)
        assert (seen.data["metrics_url"], seen.data["metrics_options"]) == ("", {})
        body = {"metrics_url": URL, "metrics_options": {"prefix": "kserve_"}}
        done = api(users.admin).patch(path, body, HTTP_IF_MATCH=seen["ETag"])
        assert (done.status_code, done.data["metrics_url"], done["ETag"]) == (200, URL, '"2"')
        assert api(users.admin).patch(path, body, HTTP_IF_MATCH=seen["ETag"]).status_code == 412
        assert api(users.admin).patch(path, body).status_code == 428
        assert api(users.viewer).get(path).data["metrics_options"] == {"prefix": "kserve_"}

    def test_others_may_not_and_that_is_audited(self, users: Cast, api: Api, cluster: Cluster) -> None:
        path = f"/api/v1/clusters/{cluster.pk}"
        answer = api(users.operator).patch(path, {"metrics_url": URL}, HTTP_IF_MATCH='"1"')
        assert (answer.status_code, answer.data["code"]) == (403, "not-allowed")
        assert AuditEvent.objects.get(action="cluster.set_metric_source").outcome == "refused"
        assert api(users.outsider).patch(path, {}, HTTP_IF_MATCH='"1"').status_code == 404

    def test_a_refused_address_is_repeated_nowhere(self, users: Cast, api: Api, cluster: Cluster) -> None:
        path = f"/api/v1/clusters/{cluster.pk}"
        body = {"metrics_url": "https://me:hunter2@prometheus.example"}
        answer = api(users.admin).patch(path, body, HTTP_IF_MATCH='"1"')
        assert (answer.status_code, answer.data["code"]) == (422, "metric-address-credentials")
        assert "hunter2" not in answer.content.decode()
        row = AuditEvent.objects.get(action="cluster.set_metric_source")
        assert "hunter2" not in json.dumps([row.before, row.after, row.reason])


class TestConnection:
    @pytest.fixture
    def folder(self, tmp_path: Path, settings: Any) -> Path:
        settings.LOCKSTEP_METRICS_CREDENTIALS = str(tmp_path)
        return tmp_path

    def test_without_a_source_there_is_nothing_to_ask(self, cluster: Cluster) -> None:
        with pytest.raises(Refused) as caught:
            connect_metrics(cluster)
        assert caught.value.code == "no-metric-source"

    def test_headers_are_those_of_the_host_and_no_others(self, cluster: Cluster, folder: Path) -> None:
        (folder / "127.0.0.1.json").write_text(json.dumps({"authorization": "Bearer a", "X-Unasked": "b"}))
        with FakeSource() as source:
            source.answer(EMPTY)
            given = give(cluster, url=source.url, options={"headers": ["Authorization"], "prefix": "kserve_"})
            client, names = connect_metrics(given)
            with client:
                client.instant("up")
            sent = source.asked[-1].headers
            assert (sent["Authorization"], names.prefix) == ("Bearer a", "kserve_")
            assert "X-Unasked" not in sent
            # The same mounted files, another address: nothing goes along.
            moved = give(cluster, url=source.url.replace("127.0.0.1", "localhost"))
            with pytest.raises(Unavailable) as caught:
                connect_metrics(moved)
            assert (caught.value.code, len(source.asked)) == ("no-metric-credential", 1)

    @pytest.mark.parametrize("content", [None, "not json", "[]", "{}", '{"Authorization": 5}'])
    def test_a_header_without_a_value_says_what_to_mount(
        self, cluster: Cluster, folder: Path, content: str | None
    ) -> None:
        if content is not None:
            (folder / "prometheus.example.json").write_text(content)
        with pytest.raises(Unavailable) as caught:
            connect_metrics(give(cluster, url=URL, options={"headers": ["Authorization"]}))
        assert caught.value.code == "no-metric-credential"
        assert "prometheus.example.json" in caught.value.next_action

    def test_a_source_without_headers_needs_no_mounted_files(self, cluster: Cluster, settings: Any) -> None:
        settings.LOCKSTEP_METRICS_CREDENTIALS = ""
        with FakeSource() as source:
            source.answer(EMPTY)
            client, _ = connect_metrics(give(cluster, url=source.url))
            with client:
                assert client.instant("up").series == ()

    def test_the_certificates_of_a_host_are_used(self, cluster: Cluster, folder: Path) -> None:
        (folder / "prometheus.example.crt").write_text("x")
        client, _ = connect_metrics(give(cluster, url=URL))
        assert client.verify == str(folder / "prometheus.example.crt")
        plain, _ = connect_metrics(give(cluster, options={"verify_tls": False}))
        assert plain.verify is False
