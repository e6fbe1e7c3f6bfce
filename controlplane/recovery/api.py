"""REST for combinations, restores and pauses of automation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, cast

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import DefaultRouter

from controlplane.access.actors import actor_of
from controlplane.access.etags import conditional, expected_version, with_etag
from controlplane.access.idempotency import idempotent
from controlplane.access.models import User
from controlplane.access.origin import token_origin
from controlplane.access.permissions import allowed
from controlplane.access.sign_in import signed_in_at
from controlplane.approvals.api import RequestDetail
from controlplane.audit.clock import database_now
from controlplane.fleet.models import Workload
from controlplane.operations import pauses
from controlplane.operations.models import AutomationPause
from controlplane.operations.serializers import RunShape
from controlplane.paths.models import Pool
from controlplane.recovery import restores, services
from controlplane.recovery.exporting import operational_artifact, pool_artifact
from controlplane.recovery.models import Combination, Restore
from controlplane.recovery.serializers import (
    CombinationDetail,
    CombinationSummary,
    PauseShape,
    RestoreBody,
    RestoreOptions,
    RestoreRequestBody,
    RestoreShape,
    WhyBody,
)


class CombinationViewSet(
    mixins.RetrieveModelMixin, mixins.ListModelMixin, viewsets.GenericViewSet[Combination]
):
    """Recovery combinations: what must be put back together."""

    queryset = Combination.objects.none()
    filterset_fields: ClassVar = ["cluster__name", "namespace", "name", "state", "pinned", "revision"]
    lookup_value_regex = r"[0-9]{1,18}"
    audited_kind = "combination"
    audited_as: ClassVar = {
        "pin": "combination.pin",
        "unpin": "combination.unpin",
        "revoke": "combination.revoke",
        "restore": "combination.restore",
    }

    def get_queryset(self) -> QuerySet[Combination]:
        """Combinations in the caller's scope, newest first."""
        rows = Combination.objects.visible_to(self.request.user)
        return rows.for_lists() if self.action == "list" else rows.select_related("cluster")

    def get_serializer_class(self) -> Any:
        """The list is short, one combination is whole."""
        return CombinationSummary if self.action == "list" else CombinationDetail

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """One combination with its ETag."""
        return self._shown(self.get_object())

    @extend_schema(request=None, responses=CombinationDetail)
    @action(detail=True, methods=["post"])
    @conditional
    @idempotent
    def pin(self, request: Request, pk: str) -> Response:
        """Keep it at hand."""
        return self._change(services.pin_combination)

    @extend_schema(request=None, responses=CombinationDetail)
    @action(detail=True, methods=["post"])
    @conditional
    @idempotent
    def unpin(self, request: Request, pk: str) -> Response:
        """No longer pinned."""
        return self._change(services.unpin_combination)

    @extend_schema(request=WhyBody, responses=CombinationDetail)
    @action(detail=True, methods=["post"])
    @conditional
    @idempotent
    def revoke(self, request: Request, pk: str) -> Response:
        """Take it out of use, with a reason."""
        sent = WhyBody(data=request.data)
        sent.is_valid(raise_exception=True)
        return self._change(services.revoke_combination, reason=sent.validated_data["reason"])

    @extend_schema(request=None, responses={202: RunShape})
    @action(detail=True, methods=["post"])
    @idempotent
    def diff(self, request: Request, pk: str) -> Response:
        """Compare it with what is there now; a worker does it, follow its run."""
        return self._asked(services.COMPARE, {})

    @extend_schema(request=RestoreOptions, responses={202: RunShape})
    @action(detail=True, methods=["post"])
    @idempotent
    def plan(self, request: Request, pk: str) -> Response:
        """See in which order it would be put back now, and at what cost; a worker does it, follow its run."""
        sent = RestoreOptions(data=request.data)
        sent.is_valid(raise_exception=True)
        return self._asked(services.PLAN, sent.validated_data)

    @extend_schema(request=RestoreRequestBody, responses={201: RequestDetail})
    @action(detail=True, methods=["post"], url_path="request")
    @conditional
    @idempotent
    def request_approval(self, request: Request, pk: str) -> Response:
        """Ask for the votes that a restore of a candidate or revoked combination needs."""
        sent = RestoreRequestBody(data=request.data)
        sent.is_valid(raise_exception=True)
        found = restores.request_restore(
            combination_id=self.get_object().pk,
            version=expected_version(request),
            reason=sent.validated_data["reason"],
            options=sent.validated_data.get("options") or {},
            user=self._user(),
            origin=token_origin(request),
            actor=actor_of(request),
        )
        context = {"request": request, "now": database_now()}
        return Response(RequestDetail(found, context=context).data, status.HTTP_201_CREATED)

    @extend_schema(request=RestoreBody, responses={201: RestoreShape})
    @action(detail=True, methods=["post"])
    @conditional
    @idempotent
    def restore(self, request: Request, pk: str) -> Response:
        """Put it back: all parts in one operation, in the place of one that runs."""
        sent = RestoreBody(data=request.data)
        sent.is_valid(raise_exception=True)
        found = restores.start_restore(
            combination_id=self.get_object().pk,
            version=expected_version(request),
            reason=sent.validated_data["reason"],
            confirm=sent.validated_data["confirm"],
            options=sent.validated_data.get("options") or {},
            user=self._user(),
            signed_in_at=signed_in_at(request._request),
            actor=actor_of(request),
        )
        return Response(RestoreShape(found).data, status.HTTP_201_CREATED)

    def _change(self, change: Callable[..., Combination], **more: Any) -> Response:
        found = change(
            combination_id=self.get_object().pk,
            version=expected_version(self.request),
            user=self._user(),
            actor=actor_of(self.request),
            **more,
        )
        return self._shown(found)

    def _asked(self, kind: str, options: dict[str, Any]) -> Response:
        run = services.request_comparison(
            combination_id=self.get_object().pk, kind=kind, options=dict(options)
        )
        return Response(RunShape(run).data, status.HTTP_202_ACCEPTED)

    def _user(self) -> User:
        return cast(User, self.request.user)

    def _shown(self, found: Combination) -> Response:
        return with_etag(Response(CombinationDetail(found).data), found.version)


class RestoreViewSet(mixins.RetrieveModelMixin, mixins.ListModelMixin, viewsets.GenericViewSet[Restore]):
    """Restores: parts done and not done, the review that is owed, and what runs afterwards."""

    queryset = Restore.objects.none()
    serializer_class = RestoreShape
    filterset_fields: ClassVar = ["combination", "operation"]

    def get_queryset(self) -> QuerySet[Restore]:
        """Restores in the caller's scope, newest first."""
        return Restore.objects.visible_to(self.request.user)


class PauseViewSet(
    mixins.RetrieveModelMixin, mixins.ListModelMixin, viewsets.GenericViewSet[AutomationPause]
):
    """Sets whose automation is paused since a restore."""

    queryset = AutomationPause.objects.none()
    serializer_class = PauseShape
    filterset_fields: ClassVar = ["cluster__name", "namespace", "name"]
    audited_kind = "automation-pause"
    audited_as: ClassVar = {"resume": "automation.resume"}

    def get_queryset(self) -> QuerySet[AutomationPause]:
        """Pauses in the caller's scope, newest first."""
        return AutomationPause.objects.visible_to(self.request.user)

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """One pause with its ETag."""
        found = self.get_object()
        return with_etag(Response(PauseShape(found).data), found.version)

    @extend_schema(request=WhyBody, responses=PauseShape)
    @action(detail=True, methods=["post"])
    @conditional
    @idempotent
    def resume(self, request: Request, pk: str) -> Response:
        """Let changes of the set start again."""
        sent = WhyBody(data=request.data)
        sent.is_valid(raise_exception=True)
        found = pauses.resume_automation(
            pause_id=self.get_object().pk,
            version=expected_version(request),
            reason=sent.validated_data["reason"],
            user=cast(User, request.user),
            actor=actor_of(request),
        )
        return with_etag(Response(PauseShape(found).data), found.version)


class SetRecoveryViewSet(viewsets.GenericViewSet[Workload]):
    """Capture of a set, and its operational artifact. Here because only this room knows of combinations."""

    queryset = Workload.objects.none()
    audited_kind = "workload"
    audited_as: ClassVar = {"capture": "combination.request_capture"}

    def get_queryset(self) -> QuerySet[Workload]:
        """Sets in the caller's scope."""
        rows = Workload.objects.select_related("cluster")
        return allowed(rows, self.request.user, cluster="cluster__name", namespace="namespace")

    @extend_schema(request=WhyBody, responses={202: RunShape})
    @action(detail=True, methods=["post"])
    @idempotent
    def capture(self, request: Request, pk: str) -> Response:
        """Capture what stands as a candidate; a worker does it, follow its run."""
        sent = WhyBody(data=request.data)
        sent.is_valid(raise_exception=True)
        run = services.request_capture(
            workload_id=self.get_object().pk,
            reason=sent.validated_data["reason"],
            user=cast(User, request.user),
            actor=actor_of(request),
        )
        return Response(RunShape(run).data, status.HTTP_202_ACCEPTED)

    @extend_schema(responses={200: dict[str, Any]})
    @action(detail=True, methods=["get"])
    def export(self, request: Request, pk: str) -> Response:
        """The operational artifact: the set's present truth as one document with version and digest."""
        return Response(operational_artifact(self.get_object()))


class PoolExportViewSet(viewsets.GenericViewSet[Pool]):
    """The operational artifact of a pool: that of every set behind it."""

    queryset = Pool.objects.none()

    def get_queryset(self) -> QuerySet[Pool]:
        """Pools in the caller's scope."""
        return Pool.objects.visible_to(self.request.user).select_related("cluster")

    @extend_schema(responses={200: dict[str, Any]})
    @action(detail=True, methods=["get"])
    def export(self, request: Request, pk: str) -> Response:
        """The pool's present truth as one document with version and digest."""
        return Response(pool_artifact(self.get_object()))


def routes(router: DefaultRouter) -> None:
    """Addresses of this room."""
    router.register("combinations", CombinationViewSet, basename="combination")
    router.register("restores", RestoreViewSet, basename="restore")
    router.register("automation-pauses", PauseViewSet, basename="automation-pause")
    router.register("workloads", SetRecoveryViewSet, basename="workload-recovery")
    router.register("pools", PoolExportViewSet, basename="pool-export")
