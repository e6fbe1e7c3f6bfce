"""`/change-requests`: what waits for approval, and the votes on it."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import DefaultRouter

from controlplane.access.actors import actor_of
from controlplane.access.etags import with_etag
from controlplane.access.idempotency import idempotent
from controlplane.access.models import User
from controlplane.access.permissions import allowed
from controlplane.access.sign_in import signed_in_at
from controlplane.approvals import services
from controlplane.approvals.models import ChangeRequest, Vote
from controlplane.approvals.refusals import why_not
from controlplane.approvals.standing import possible_voters, standing_of
from controlplane.audit.clock import database_now


def routes(router: DefaultRouter) -> None:
    """Add this room's addresses."""
    router.register("change-requests", ChangeRequestViewSet, basename="change-requests")


class VoteDocument(serializers.ModelSerializer[Vote]):
    """One person's word; voided ones keep the notice why."""

    voter = serializers.CharField(source="voter.username")

    class Meta:
        model = Vote
        fields = ["id", "voter", "choice", "comment", "digest", "at", "void_reason"]


class SlotDocument(serializers.Serializer[Any]):
    """One vote that is needed: from somebody with the role, in the group where one is named."""

    role = serializers.CharField()
    group = serializers.CharField(allow_null=True)


class RequestDocument(serializers.ModelSerializer[ChangeRequest]):
    """A change request; `counted` are the people whose approval stands, `missing` the slots still empty."""

    requester = serializers.CharField(source="requester.username")
    slots = SlotDocument(many=True)
    counted = serializers.SerializerMethodField()
    missing = serializers.SerializerMethodField()

    class Meta:
        model = ChangeRequest
        fields = [
            "id",
            "subject_kind",
            "subject_id",
            "step",
            "attempt",
            "digest",
            "title",
            "reason",
            "risk",
            "slots",
            "cluster",
            "namespace",
            "requester",
            "excluded",
            "state",
            "state_reason",
            "counted",
            "missing",
            "created_at",
            "expires_at",
            "decided_at",
            "version",
        ]

    def _standing(self, request: ChangeRequest) -> Any:
        return standing_of(request, list(request.votes.all()), now=self.context["now"])

    def get_counted(self, request: ChangeRequest) -> list[str]:
        """Usernames."""
        return list(self._standing(request).counted)

    @extend_schema(responses=SlotDocument(many=True))
    def get_missing(self, request: ChangeRequest) -> list[dict[str, Any]]:
        """Empty slots of an open request."""
        if request.state != ChangeRequest.State.OPEN:
            return []
        return [{"role": slot.role, "group": slot.group} for slot in self._standing(request).missing]


class WhyNot(serializers.Serializer[Any]):
    """One reason why you may not vote."""

    code = serializers.CharField()
    detail = serializers.CharField()
    next_action = serializers.CharField()


class RequestDetail(RequestDocument):
    """With evidence, votes, who may vote, and why you may not."""

    votes = VoteDocument(many=True)
    evidence = serializers.JSONField()
    excluded = serializers.DictField(child=serializers.CharField())
    may_vote = serializers.SerializerMethodField()
    why_not_you = serializers.SerializerMethodField()

    class Meta(RequestDocument.Meta):
        fields = [*RequestDocument.Meta.fields, "evidence", "votes", "may_vote", "why_not_you"]

    def get_may_vote(self, request: ChangeRequest) -> list[str]:
        """Usernames of up to 100 people whose vote would count."""
        return possible_voters(request) if request.state == ChangeRequest.State.OPEN else []

    @extend_schema(responses=WhyNot(many=True))
    def get_why_not_you(self, request: ChangeRequest) -> list[dict[str, str]]:
        """Empty where you may vote now."""
        caller: Request = self.context["request"]
        user = caller.user
        assert isinstance(user, User)
        return why_not(
            user,
            request,
            signed_in_at=signed_in_at(caller._request),
            by_token=user.token is not None,
            now=self.context["now"],
        )


class VoteBody(serializers.Serializer[Any]):
    """Your word on the digest you saw; a rejection needs a comment."""

    choice = serializers.ChoiceField(choices=Vote.Choice.choices)
    digest = serializers.CharField(max_length=80)
    comment = serializers.CharField(max_length=4000, required=False, default="", allow_blank=True)


class WithdrawBody(serializers.Serializer[Any]):
    """Why it is taken back."""

    reason = serializers.CharField(max_length=1000, required=False, default="", allow_blank=True)


class ChangeRequestViewSet(
    mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[ChangeRequest]
):
    """Change requests in the clusters and namespaces that you may read."""

    queryset = ChangeRequest.objects.none()
    filterset_fields = [
        "state",
        "subject_kind",
        "subject_id",
        "cluster",
        "namespace",
        "requester__username",
    ]
    lookup_value_regex = r"[0-9]{1,18}"
    audited_kind = "change-request"
    audited_as = {"votes": "vote.cast", "withdraw": "request.withdraw"}

    def get_serializer_class(self) -> type[RequestDocument]:
        """Lists leave out what is long."""
        return RequestDocument if self.action == "list" else RequestDetail

    def get_serializer_context(self) -> dict[str, Any]:
        """The database's time, once per answer."""
        return {**super().get_serializer_context(), "now": database_now()}

    def get_queryset(self) -> QuerySet[ChangeRequest]:
        """Newest first."""
        rows = ChangeRequest.objects.with_votes().order_by("-pk")
        return allowed(rows, self.request.user, cluster="cluster", namespace="namespace")

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """One request with its evidence and votes; its version is the ETag."""
        found = self.get_object()
        return with_etag(Response(self.get_serializer(found).data), found.version)

    @extend_schema(request=VoteBody, responses=RequestDetail)
    @action(detail=True, methods=["post"])
    @idempotent
    def votes(self, request: Request, pk: str) -> Response:
        """Vote, in person. The digest must be the one you saw."""
        found = self.get_object()
        body = VoteBody(data=request.data)
        body.is_valid(raise_exception=True)
        user = request.user
        assert isinstance(user, User)
        services.cast_vote(
            request_id=found.pk,
            voter=user,
            signed_in_at=signed_in_at(request._request),
            is_token=user.token is not None,
            actor=actor_of(request),
            **body.validated_data,
        )
        return self._now(found.pk)

    @extend_schema(request=WithdrawBody, responses=RequestDetail)
    @action(detail=True, methods=["post"])
    @idempotent
    def withdraw(self, request: Request, pk: str) -> Response:
        """Take your own request back."""
        found = self.get_object()
        body = WithdrawBody(data=request.data)
        body.is_valid(raise_exception=True)
        user = request.user
        assert isinstance(user, User)
        services.withdraw_request(
            request_id=found.pk, by=user, actor=actor_of(request), **body.validated_data
        )
        return self._now(found.pk)

    def _now(self, pk: int) -> Response:
        found = ChangeRequest.objects.with_votes().get(pk=pk)
        return with_etag(Response(self.get_serializer(found).data), found.version)
