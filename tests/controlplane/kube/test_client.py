"""What may be concluded from each way in which a call can go wrong."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from controlplane.kube.client import Kube
from controlplane.kube.errors import (
    AlreadyExists,
    Conflict,
    Denied,
    Expired,
    Invalid,
    KubeError,
    NotAuthenticated,
    ObjectMissing,
    ServerFailed,
    TooManyRequests,
    Unanswered,
    Unreachable,
)
from controlplane.kube.resources import (
    ADMISSION_POLICIES,
    CONFIG_MAPS,
    LEADER_WORKER_SETS,
    NODES,
    PODS,
    Resource,
)
from tests.controlplane.kube.fake_api import Answer, FakeApi

READ = {"metadata": {"name": "a", "namespace": "work", "resourceVersion": "7", "uid": "u"}}


@pytest.fixture
def fake() -> Iterator[FakeApi]:
    with FakeApi() as api:
        yield api


@pytest.fixture
def kube(fake: FakeApi) -> Iterator[Kube]:
    with Kube.for_server(fake.url, token="secret", timeout=0.6) as client:
        yield client


def status(code: int, reason: str, message: str, **details: Any) -> Answer:
    return Answer(
        code, {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}
    )


class TestPaths:
    def test_core_named_and_cluster_wide(self) -> None:
        assert PODS.path() == "/api/v1/pods"
        assert PODS.path(namespace="a b", name="x/y") == "/api/v1/namespaces/a%20b/pods/x%2Fy"
        assert NODES.path(name="n1") == "/api/v1/nodes/n1"
        assert LEADER_WORKER_SETS.path(namespace="n", name="s", subresource="scale") == (
            "/apis/leaderworkerset.x-k8s.io/v1/namespaces/n/leaderworkersets/s/scale"
        )
        assert ADMISSION_POLICIES.api_version == "admissionregistration.k8s.io/v1"

    @pytest.mark.parametrize(
        ("resource", "address"),
        [
            (PODS, {"name": "x"}),
            (NODES, {"namespace": "n"}),
            (PODS, {"namespace": "n", "subresource": "status"}),
        ],
    )
    def test_an_address_that_means_nothing_is_refused(
        self, resource: Resource, address: dict[str, str]
    ) -> None:
        with pytest.raises(ValueError):
            resource.path(**address)


class TestReading:
    def test_a_list_is_read_in_pages_and_items_say_what_they_are(self, fake: FakeApi, kube: Kube) -> None:
        for number in range(7):
            fake.put(f"pod-{number}")
        listing = kube.list(PODS, "work", page=3, label_selector="a=b")
        assert [item["metadata"]["name"] for item in listing.items] == [f"pod-{n}" for n in range(7)]
        assert {(item["apiVersion"], item["kind"]) for item in listing.items} == {("v1", "Pod")}
        assert listing.resource_version == str(fake.version)
        assert [each.query.get("continue") for each in fake.asked] == [None, "3", "6"]
        assert all(each.query["labelSelector"] == "a=b" for each in fake.asked)
        assert fake.asked[0].headers["authorization"] == "Bearer secret"

    def test_a_page_token_that_expires_starts_the_list_over(self, fake: FakeApi, kube: Kube) -> None:
        for number in range(4):
            fake.put(f"pod-{number}")
        first = Answer(body={"items": [fake.objects["pod-0"]], "metadata": {"continue": "1"}})
        fake.lists.extend([first, status(410, "Expired", "the continue token is too old")])
        assert len(kube.list(PODS, "work").items) == 4

    def test_a_list_that_always_expires_ends_in_the_error(self, fake: FakeApi, kube: Kube) -> None:
        fake.lists.extend([status(410, "Expired", "old")] * 9)
        with pytest.raises(Expired):
            kube.list(PODS)
        assert len(fake.asked) == 3

    def test_absent_object_and_absent_kind_differ(self, fake: FakeApi, kube: Kube) -> None:
        fake.lists.append(status(404, "NotFound", 'pods "a" not found', name="a", kind="pods"))
        with pytest.raises(ObjectMissing) as missing:
            kube.get(PODS, "a", "work")
        assert not missing.value.api_missing
        fake.lists.append(Answer(404, "404 page not found"))
        with pytest.raises(ObjectMissing) as unknown:
            kube.list(LEADER_WORKER_SETS)
        assert unknown.value.api_missing
        fake.lists.append(Answer(404, "404 page not found"))
        assert kube.find(PODS, "a", "work") is None
        fake.lists.append(Answer(404, "404 page not found"))
        assert kube.find_api("keda.sh") is False

    def test_a_read_without_an_answer_changed_nothing(self, fake: FakeApi, kube: Kube) -> None:
        fake.lists.append(Answer(mute=True))
        started = time.monotonic()
        with pytest.raises(Unreachable):
            kube.get(PODS, "a", "work")
        assert time.monotonic() - started < 1.5
        assert not kube.unanswered

    def test_a_server_that_dribbles_cannot_hold_a_call(self, fake: FakeApi, kube: Kube) -> None:
        fake.lists.append(Answer(body={"items": [], "metadata": {"resourceVersion": "1" * 80}}, dribble=0.1))
        started = time.monotonic()
        with pytest.raises(Unreachable):
            kube.list(PODS)
        assert time.monotonic() - started < 1.5

    def test_text_that_is_no_json_is_no_answer(self, fake: FakeApi, kube: Kube) -> None:
        fake.lists.append(Answer(200, "<html>sign in</html>"))
        with pytest.raises(Unreachable):
            kube.get(PODS, "a", "work")


class TestWriting:
    def test_replace_goes_out_only_with_the_version_that_was_read(self, fake: FakeApi, kube: Kube) -> None:
        with pytest.raises(ValueError):
            kube.replace(CONFIG_MAPS, {"metadata": {"name": "a", "namespace": "work"}})
        assert not fake.asked
        kube.replace(CONFIG_MAPS, READ, dry_run=True)
        assert fake.asked[0].method == "PUT"
        assert fake.asked[0].query == {"dryRun": "All", "fieldManager": "lockstep"}

    def test_patch_carries_the_version_beside_the_callers_metadata(self, fake: FakeApi, kube: Kube) -> None:
        body = {"metadata": {"annotations": {"x": "1"}}}
        kube.patch(CONFIG_MAPS, "a", "work", body, resource_version="7")
        assert fake.asked[0].body == {"metadata": {"annotations": {"x": "1"}, "resourceVersion": "7"}}
        assert fake.asked[0].headers["Content-Type"] == "application/merge-patch+json"
        assert body == {"metadata": {"annotations": {"x": "1"}}}
        kube.patch(CONFIG_MAPS, "a", "work", body, resource_version=None)
        assert fake.asked[1].body == body

    def test_delete_names_the_object_that_was_read(self, fake: FakeApi, kube: Kube) -> None:
        kube.delete(LEADER_WORKER_SETS, "a", "work", uid="u", resource_version="7")
        assert fake.asked[0].body is not None
        assert fake.asked[0].body["preconditions"] == {"uid": "u", "resourceVersion": "7"}

    @pytest.mark.parametrize("answer", [Answer(mute=True), Answer(body={"metadata": {}}, cut=True)])
    def test_a_write_without_a_whole_answer_may_have_been_applied(
        self, fake: FakeApi, kube: Kube, answer: Answer
    ) -> None:
        fake.writes.append(answer)
        with pytest.raises(Unanswered) as error:
            kube.replace(CONFIG_MAPS, READ)
        assert error.value.unanswered and kube.unanswered
        assert len(fake.asked) == 1, "a write is never sent twice"

    def test_a_dry_run_without_an_answer_changed_nothing(self, fake: FakeApi, kube: Kube) -> None:
        fake.writes.append(Answer(mute=True))
        with pytest.raises(Unreachable):
            kube.replace(CONFIG_MAPS, READ, dry_run=True)
        assert not kube.unanswered

    def test_nothing_is_sent_where_nobody_listens(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            with Kube.for_server(f"http://127.0.0.1:{taken.getsockname()[1]}", timeout=0.5) as kube:
                with pytest.raises(Unreachable):
                    kube.replace(CONFIG_MAPS, READ)
                assert not kube.unanswered

    def test_nothing_is_sent_before_the_handshake_is_done(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as mute:
            with Kube.for_server(f"https://127.0.0.1:{mute.getsockname()[1]}", timeout=0.4) as kube:
                with pytest.raises(Unreachable):
                    kube.replace(CONFIG_MAPS, READ)
                assert not kube.unanswered

    def test_a_server_that_speaks_no_tls_was_sent_nothing(self, fake: FakeApi) -> None:
        with Kube.for_server(fake.url.replace("http:", "https:"), timeout=0.6) as kube:
            with pytest.raises(Unreachable):
                kube.replace(CONFIG_MAPS, READ)
        assert not fake.asked

    def test_a_connection_that_the_server_closed_while_idle_is_not_used(
        self, fake: FakeApi, kube: Kube
    ) -> None:
        fake.lists.append(Answer(body={"metadata": {}}, headers={"Connection": "close"}))
        kube.get(PODS, "a", "work")
        kube.replace(CONFIG_MAPS, READ)
        assert [each.method for each in fake.asked] == ["GET", "PUT"]

    @pytest.mark.parametrize(
        ("answer", "unanswered"),
        [
            (status(500, "InternalError", "etcdserver: request timed out"), True),
            (status(504, "Timeout", "request did not complete within requested timeout"), True),
            (Answer(502, "<html>bad gateway</html>"), True),
            (
                status(
                    500,
                    "InternalError",
                    'Internal error occurred: failed calling webhook "v": connection refused',
                ),
                False,
            ),
        ],
    )
    def test_a_failed_write_may_have_been_stored_unless_a_webhook_stopped_it(
        self, fake: FakeApi, kube: Kube, answer: Answer, unanswered: bool
    ) -> None:
        fake.writes.extend([answer, answer])
        with pytest.raises(ServerFailed) as error:
            kube.replace(CONFIG_MAPS, READ)
        assert error.value.unanswered is unanswered
        assert kube.unanswered is unanswered
        with pytest.raises(ServerFailed) as dry:
            kube.replace(CONFIG_MAPS, READ, dry_run=True)
        assert dry.value.unanswered is False

    @pytest.mark.parametrize(
        ("answer", "kind"),
        [
            (status(409, "Conflict", "the object has been modified", name="a"), Conflict),
            (status(409, "AlreadyExists", "already exists", name="a"), AlreadyExists),
            (status(403, "Forbidden", 'User "x" cannot create resource', name="a"), Denied),
            (status(401, "Unauthorized", "Unauthorized"), NotAuthenticated),
            (status(400, "BadRequest", "strict decoding error"), Invalid),
            (status(422, "Invalid", "spec: Invalid value"), Invalid),
            (status(410, "Gone", "gone"), Expired),
        ],
    )
    def test_a_refusal_changed_nothing(
        self, fake: FakeApi, kube: Kube, answer: Answer, kind: type[KubeError]
    ) -> None:
        fake.writes.append(answer)
        with pytest.raises(KubeError) as error:
            kube.create(CONFIG_MAPS, READ)
        assert type(error.value) is kind
        assert not error.value.unanswered and not kube.unanswered
        assert not error.value.by_admission

    def test_admission_is_told_from_missing_permission(self, fake: FakeApi, kube: Kube) -> None:
        sentence = (
            'leaderworkersets.leaderworkerset.x-k8s.io "a" is forbidden: ValidatingAdmissionPolicy '
            "'lockstep-rollout-hold' with binding 'lockstep-rollout-hold' denied request: lockstep hold 7"
        )
        fake.writes.append(status(403, "Forbidden", sentence, name="a"))
        fake.writes.append(
            status(403, "Forbidden", 'admission webhook "v.example" denied the request: no', name="a")
        )
        with pytest.raises(Denied) as policy:
            kube.replace(CONFIG_MAPS, READ, dry_run=True)
        assert policy.value.by_admission
        assert policy.value.policy == "lockstep-rollout-hold"
        with pytest.raises(Denied) as webhook:
            kube.replace(CONFIG_MAPS, READ)
        assert webhook.value.by_admission
        assert webhook.value.policy == ""

    def test_too_many_requests_says_how_long_to_wait(self, fake: FakeApi, kube: Kube) -> None:
        fake.writes.append(Answer(429, {"code": 429}, headers={"Retry-After": "3"}))
        fake.writes.append(status(429, "TooManyRequests", "slow down", retryAfterSeconds=2))
        for seconds in (3.0, 2.0):
            with pytest.raises(TooManyRequests) as error:
                kube.replace(CONFIG_MAPS, READ)
            assert error.value.retry_after == seconds

    def test_the_hook_hears_of_every_call_before_and_after(self, fake: FakeApi) -> None:
        heard: list[tuple[str, str, str]] = []
        with Kube.for_server(
            fake.url,
            timeout=0.4,
            on_call=lambda phase, verb, resource, name: heard.append((phase, verb, name)),
        ) as kube:
            kube.replace(CONFIG_MAPS, READ, dry_run=True)
            fake.writes.extend([status(409, "Conflict", "no"), Answer(mute=True)])
            for kind in (Conflict, Unanswered):
                with pytest.raises(kind):
                    kube.delete(CONFIG_MAPS, "a", "work", uid="u", resource_version=None)
        assert heard == [
            ("before", "dry-run replace", "a"),
            ("after", "dry-run replace", "a"),
            ("before", "delete", "a"),
            ("after", "delete", "a"),
            ("before", "delete", "a"),
        ]

    def test_fresh_shares_no_connection_and_no_doubt(self, fake: FakeApi, kube: Kube) -> None:
        fake.writes.append(Answer(mute=True))
        with pytest.raises(Unanswered):
            kube.replace(CONFIG_MAPS, READ)
        with kube.fresh() as other:
            assert not other.unanswered
            other.get(PODS, "a", "work")
            assert fake.asked[-1].headers["authorization"] == "Bearer secret"


class TestWatching:
    def test_events_and_the_end_of_the_watch(self, fake: FakeApi, kube: Kube) -> None:
        fake.put("a")
        fake.put("b")
        fake.drop("a")
        found = list(kube.watch(PODS, "work", resource_version="101", server_timeout=1))
        assert [(kind, item["metadata"]["name"]) for kind, item in found] == [
            ("ADDED", "b"),
            ("DELETED", "a"),
        ]
        assert fake.asked[0].query["allowWatchBookmarks"] == "true"

    def test_too_old_a_version_is_expired_at_once_or_as_an_event(self, fake: FakeApi, kube: Kube) -> None:
        fake.oldest = 500
        with pytest.raises(Expired):
            kube.watch(PODS, resource_version="101")
        fake.oldest = 0
        fake.send_error(410)
        with pytest.raises(Expired):
            list(kube.watch(PODS, resource_version="100", server_timeout=5))

    def test_a_dropped_connection_is_an_error_and_not_an_end(self, fake: FakeApi, kube: Kube) -> None:
        watch = kube.watch(PODS, resource_version="100", server_timeout=20)
        threading.Timer(0.2, fake.drop_watches).start()
        with pytest.raises(Unreachable):
            list(watch)

    def test_a_silent_connection_is_an_error(self, fake: FakeApi, kube: Kube) -> None:
        fake.frozen = True
        with pytest.raises(Unreachable):
            list(kube.watch(PODS, resource_version="100", server_timeout=20, read_timeout=0.3))

    def test_closing_from_another_thread_ends_the_iteration(self, fake: FakeApi, kube: Kube) -> None:
        watch = kube.watch(PODS, resource_version="100", server_timeout=20)
        threading.Timer(0.2, watch.close).start()
        started = time.monotonic()
        assert list(watch) == []
        assert time.monotonic() - started < 2
