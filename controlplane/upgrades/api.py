"""REST for plans (draft, edit, check, acknowledge, request, start) and update records."""

from __future__ import annotations

from typing import Any, cast

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
from controlplane.upgrades import services
from controlplane.upgrades.models import Plan, UpdateRecord
from controlplane.upgrades.records import exported
from controlplane.upgrades.serializers import (
    Acknowledgement,
    NewPlan,
    PlanChanges,
    PlanDetail,
    PlanSummary,
    Requested,
    Started,
    UpdateRecordShape,
)


class PlanViewSet(mixins.RetrieveModelMixin, mixins.ListModelMixin, viewsets.GenericViewSet[Plan]):
    """Plans of upgrades."""

    queryset = Plan.objects.none()
    filterset_fields = ["workload", "workload__cluster__name", "workload__namespace", "state", "requester"]

    def get_queryset(self) -> QuerySet[Plan]:
        """Plans in the caller's scope, newest first."""
        return Plan.objects.visible_to(self.request.user).order_by("-id")

    def get_serializer_class(self) -> Any:
        """The list is short, one plan is whole."""
        return PlanSummary if self.action == "list" else PlanDetail

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """One plan with its ETag."""
        return self._shown(self.get_object())

    @extend_schema(request=NewPlan, responses={201: PlanDetail})
    @idempotent
    def create(self, request: Request) -> Response:
        """Draft a plan; a worker then checks it against the live cluster."""
        sent = NewPlan(data=request.data)
        sent.is_valid(raise_exception=True)
        data = sent.validated_data
        plan = services.draft_plan(
            workload_id=data["workload"],
            title=data["title"],
            reason=data["reason"],
            draft=data["draft"],
            options=data["options"],
            requester=self._user(),
            origin=token_origin(request),
            actor=actor_of(request),
        )
        return self._shown(plan, status.HTTP_201_CREATED)

    @extend_schema(request=PlanChanges, responses=PlanDetail)
    @conditional
    def partial_update(self, request: Request, pk: str) -> Response:
        """Edit: a new version, votes on the old one are void, the editor may not vote."""
        sent = PlanChanges(data=request.data)
        sent.is_valid(raise_exception=True)
        plan = services.edit_plan(
            plan_id=self.get_object().pk,
            version=expected_version(request),
            changes=sent.validated_data,
            editor=self._user(),
            origin=token_origin(request),
            actor=actor_of(request),
        )
        return self._shown(plan)

    @extend_schema(request=None, responses=PlanDetail)
    @action(detail=True, methods=["post"])
    @conditional
    @idempotent
    def check(self, request: Request, pk: str) -> Response:
        """Check against the live cluster again."""
        plan = services.recheck_plan(
            plan_id=self.get_object().pk,
            version=expected_version(request),
            user=self._user(),
            actor=actor_of(request),
        )
        return self._shown(plan)

    @extend_schema(request=Acknowledgement, responses=PlanDetail)
    @action(detail=True, methods=["post"])
    @conditional
    @idempotent
    def acknowledge(self, request: Request, pk: str) -> Response:
        """The requester acknowledges one warning."""
        sent = Acknowledgement(data=request.data)
        sent.is_valid(raise_exception=True)
        plan = services.acknowledge_hazard(
            plan_id=self.get_object().pk,
            version=expected_version(request),
            hazard=sent.validated_data["hazard"],
            user=self._user(),
            actor=actor_of(request),
        )
        return self._shown(plan)

    @extend_schema(request=None, responses={201: Requested})
    @action(detail=True, methods=["post"], url_path="request")
    @conditional
    @idempotent
    def request_approval(self, request: Request, pk: str) -> Response:
        """Ask for the votes that the risk class needs."""
        found = services.request_approval(
            plan_id=self.get_object().pk,
            version=expected_version(request),
            user=self._user(),
            origin=token_origin(request),
            actor=actor_of(request),
        )
        return Response({"change_request": found.pk, "state": found.state}, status.HTTP_201_CREATED)

    @extend_schema(request=None, responses={201: Started})
    @action(detail=True, methods=["post"])
    @conditional
    @idempotent
    def start(self, request: Request, pk: str) -> Response:
        """Start the approved upgrade."""
        operation = services.start_upgrade(
            plan_id=self.get_object().pk,
            version=expected_version(request),
            user=self._user(),
            origin=token_origin(request),
            actor=actor_of(request),
        )
        return Response({"operation": operation.pk}, status.HTTP_201_CREATED)

    def _user(self) -> User:
        return cast(User, self.request.user)

    def _shown(self, plan: Plan, code: int = status.HTTP_200_OK) -> Response:
        return with_etag(Response(PlanDetail(plan).data, code), plan.version)


class UpdateRecordViewSet(
    mixins.RetrieveModelMixin, mixins.ListModelMixin, viewsets.GenericViewSet[UpdateRecord]
):
    """Update records: what was changed, by whom it was approved, and how it ended."""

    queryset = UpdateRecord.objects.none()
    serializer_class = UpdateRecordShape
    filterset_fields = ["plan", "operation", "outcome"]

    def get_queryset(self) -> QuerySet[UpdateRecord]:
        """Records in the caller's scope, newest first."""
        return UpdateRecord.objects.visible_to(self.request.user).order_by("-id")

    @extend_schema(responses={200: dict[str, Any]})
    @action(detail=True, methods=["get"])
    def export(self, request: Request, pk: str) -> Response:
        """The record as one document with version and digest."""
        return Response(exported(self.get_object()))


def routes(router: DefaultRouter) -> None:
    """Addresses of this room."""
    router.register("plans", PlanViewSet, basename="plan")
    router.register("update-records", UpdateRecordViewSet, basename="update-record")
