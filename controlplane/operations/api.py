"""REST for operations (read, and the verbs of people), runs, and the takeover of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, cast

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import DefaultRouter

from controlplane.access.actors import actor_of
from controlplane.access.etags import conditional, expected_version, with_etag
from controlplane.access.idempotency import idempotent
from controlplane.access.models import User
from controlplane.access.permissions import Action, allowed, require
from controlplane.fleet.models import Cluster
from controlplane.operations import services
from controlplane.operations.installation import request_take_over
from controlplane.operations.looks import request_series
from controlplane.operations.models import Operation, Run
from controlplane.operations.serializers import (
    OperationDetail,
    OperationSummary,
    Reason,
    RunShape,
    StatedReason,
)
from controlplane.paths.api import SeriesSummary
from controlplane.paths.models import Pool, ProbeSeries


class OperationViewSet(mixins.RetrieveModelMixin, mixins.ListModelMixin, viewsets.GenericViewSet[Operation]):
    """Operations: one execution of a change each."""

    queryset = Operation.objects.none()
    filterset_fields = ["kind", "state", "phase", "cluster__name", "namespace", "subject_id", "started_by"]

    def get_queryset(self) -> QuerySet[Operation]:
        """Operations in the caller's scope, newest first."""
        rows = Operation.objects.visible_to(self.request.user)
        return rows.for_lists() if self.action == "list" else rows.for_pages()

    def get_serializer_class(self) -> Any:
        """The list is short, one operation is whole."""
        return OperationSummary if self.action == "list" else OperationDetail

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """One operation with its ETag."""
        return self._shown(self.get_object())

    @extend_schema(request=Reason, responses=OperationDetail)
    @action(detail=True, methods=["post"])
    @conditional
    @idempotent
    def promote(self, request: Request, pk: str) -> Response:
        """Go past the hold that it stands at."""
        return self._do(request, services.promote_operation)

    @extend_schema(request=Reason, responses=OperationDetail)
    @action(detail=True, methods=["post"])
    @conditional
    @idempotent
    def resume(self, request: Request, pk: str) -> Response:
        """Go on where a finding stopped it."""
        return self._do(request, services.resume_operation)

    @extend_schema(request=Reason, responses=OperationDetail)
    @action(detail=True, methods=["post"])
    @conditional
    @idempotent
    def retry(self, request: Request, pk: str) -> Response:
        """Have the step done over, as a new attempt."""
        return self._do(request, services.retry_operation)

    @extend_schema(request=Reason, responses=OperationDetail)
    @action(detail=True, methods=["post"])
    @conditional
    @idempotent
    def stop(self, request: Request, pk: str) -> Response:
        """Freeze at the live counts."""
        return self._do(request, services.stop_operation)

    @extend_schema(request=Reason, responses=OperationDetail)
    @action(detail=True, methods=["post"])
    @conditional
    @idempotent
    def abort(self, request: Request, pk: str) -> Response:
        """Go back. Always accepted while it is unfinished."""
        return self._do(request, services.abort_operation)

    @extend_schema(request=StatedReason, responses=OperationDetail)
    @action(detail=True, methods=["post"])
    @conditional
    @idempotent
    def adopt(self, request: Request, pk: str) -> Response:
        """Take the world's state as ours."""
        return self._do(request, services.adopt_operation, right="operation.adopt", body=StatedReason)

    def _do(
        self,
        request: Request,
        verb: Callable[..., Operation],
        *,
        right: Action = "operation.steer",
        body: type[Reason] | type[StatedReason] = Reason,
    ) -> Response:
        operation = self.get_object()
        require(request.user, right, cluster=operation.cluster.name, namespace=operation.namespace)
        sent = body(data=request.data)
        sent.is_valid(raise_exception=True)
        verb(
            operation_id=operation.pk,
            reason=sent.validated_data["reason"],
            actor=actor_of(request),
            version=expected_version(request),
        )
        return self._shown(self.get_object())

    def _shown(self, operation: Operation) -> Response:
        shown = OperationDetail(operation, context=self.get_serializer_context())
        return with_etag(Response(shown.data), operation.version)


class RunViewSet(mixins.RetrieveModelMixin, mixins.ListModelMixin, viewsets.GenericViewSet[Run]):
    """Runs: what a worker does outside operations, such as a takeover."""

    queryset = Run.objects.none()
    serializer_class = RunShape
    filterset_fields = ["kind", "state"]

    def get_queryset(self) -> QuerySet[Run]:
        """Runs in the caller's scope, newest first."""
        return Run.objects.visible_to(self.request.user).order_by("-id")


class TakeOverViewSet(viewsets.GenericViewSet[Cluster]):
    """The one write to a cluster's right to be written to."""

    queryset = Cluster.objects.none()

    def get_queryset(self) -> QuerySet[Cluster]:
        """Clusters in the caller's scope."""
        return allowed(Cluster.objects.all(), self.request.user, cluster="name")

    @extend_schema(request=StatedReason, responses={202: RunShape})
    @action(detail=True, methods=["post"], url_path="take-over")
    @idempotent
    def take_over(self, request: Request, pk: str) -> Response:
        """Make this installation the one that may write to the cluster; a worker does it, follow its run."""
        cluster = self.get_object()
        require(request.user, "cluster.manage", cluster=cluster.name)
        sent = StatedReason(data=request.data)
        sent.is_valid(raise_exception=True)
        run = request_take_over(
            cluster_id=cluster.pk, reason=sent.validated_data["reason"], actor=actor_of(request)
        )
        return Response(RunShape(run).data, status.HTTP_202_ACCEPTED)


class ProbeBody(serializers.Serializer[Any]):
    """What to look at: `probe` or `parity`, of one revision or as any client."""

    kind = serializers.ChoiceField(choices=ProbeSeries.Kind.choices, default=ProbeSeries.Kind.PROBE)
    revision = serializers.RegexField(r"^[0-9a-z]{0,16}$", default="", allow_blank=True)


class PoolProbeViewSet(viewsets.GenericViewSet[Pool]):
    """The one request that sends probes. Here because only this room knows of runs."""

    queryset = Pool.objects.none()
    audited_as: ClassVar = {"probe": "pool.probe"}
    audited_kind = "pool"

    def get_queryset(self) -> QuerySet[Pool]:
        """Pools in the caller's scope."""
        return Pool.objects.visible_to(self.request.user).select_related("cluster")

    @extend_schema(request=ProbeBody, responses={202: SeriesSummary})
    @action(detail=True, methods=["post"])
    @idempotent
    def probe(self, request: Request, pk: str) -> Response:
        """Send a series of probes; a worker does it, follow the series."""
        pool = self.get_object()
        require(request.user, "operation.steer", cluster=pool.cluster.name, namespace=pool.namespace)
        sent = ProbeBody(data=request.data)
        sent.is_valid(raise_exception=True)
        series = request_series(
            pool_id=pool.pk, user=cast(User, request.user), actor=actor_of(request), **sent.validated_data
        )
        return Response(SeriesSummary(series).data, status.HTTP_202_ACCEPTED)


def routes(router: DefaultRouter) -> None:
    """Addresses of this room. The takeover is here because only this room knows of installations."""
    router.register("operations", OperationViewSet, basename="operation")
    router.register("runs", RunViewSet, basename="run")
    router.register("clusters", TakeOverViewSet, basename="cluster-take-over")
    router.register("pools", PoolProbeViewSet, basename="pool-probe")
