"""`/audit`: the record, for people. It stands here because reading it needs rights, which audit itself knows not."""

from __future__ import annotations

import json
from typing import Any

from django.db.models import Q, QuerySet
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import mixins, serializers, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.access.permissions import can, require
from controlplane.audit.chain import last_anchor, unsealed_age
from controlplane.audit.models import AuditEvent, AuditPending, AuditSeal

EXPORTED_AT_ONCE = 10_000


class SealDocument(serializers.ModelSerializer[AuditSeal]):
    """The link that seals an event."""

    class Meta:
        model = AuditSeal
        fields = ["seq", "previous", "hash", "sealed_at"]


class EventDocument(serializers.ModelSerializer[AuditEvent]):
    """One intent and its outcome; `seal` is null for the second until the sealer has passed."""

    seal = serializers.SerializerMethodField()
    before = serializers.JSONField()
    after = serializers.JSONField()

    class Meta:
        model = AuditEvent
        fields = [
            "id",
            "at",
            "actor",
            "actor_kind",
            "on_behalf_of",
            "action",
            "outcome",
            "code",
            "target_kind",
            "target_id",
            "before",
            "after",
            "reason",
            "request_id",
            "source_ip",
            "fence",
            "seal",
        ]

    @extend_schema(responses=SealDocument(allow_null=True))
    def get_seal(self, event: AuditEvent) -> dict[str, Any] | None:
        """The seal, without a query of its own."""
        seal = getattr(event, "seal", None)
        return None if seal is None else SealDocument(seal).data


class ChainDocument(serializers.Serializer[Any]):
    """The end of the chain, and how far behind it is."""

    seq = serializers.IntegerField()
    hash = serializers.CharField(allow_blank=True)
    sealed_at = serializers.DateTimeField(allow_null=True)
    unsealed = serializers.IntegerField()
    unsealed_age_seconds = serializers.FloatField()


class AuditViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[AuditEvent]):
    """The audit record. Whoever may read everywhere sees all of it, everybody else what they did themselves."""

    queryset = AuditEvent.objects.none()
    serializer_class = EventDocument
    filterset_fields = {
        "actor": ["exact"],
        "action": ["exact"],
        "target_kind": ["exact"],
        "target_id": ["exact"],
        "outcome": ["exact"],
        "code": ["exact"],
        "at": ["gte", "lt"],
    }
    lookup_value_regex = r"[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[AuditEvent]:
        """Newest first, with seals."""
        rows = AuditEvent.objects.select_related("seal").order_by("-pk")
        if can(self.request.user, "read"):
            return rows
        mine = self.request.user.get_username()
        return rows.filter(Q(actor=mine) | Q(on_behalf_of=mine))

    @extend_schema(responses=ChainDocument)
    @action(detail=False, pagination_class=None, filter_backends=[])
    def chain(self, request: Request) -> Response:
        """The last link and the age of the unsealed tail."""
        require(request.user, "read")
        last = last_anchor()
        document = {
            "seq": last.seq if last else 0,
            "hash": last.hash if last else "",
            "sealed_at": last.sealed_at if last else None,
            "unsealed": AuditPending.objects.count(),
            "unsealed_age_seconds": unsealed_age(),
        }
        return Response(ChainDocument(document).data)

    @extend_schema(
        parameters=[OpenApiParameter("after", OpenApiTypes.INT, description="Only events with a larger id.")],
        responses={(200, "application/x-ndjson"): OpenApiResponse(OpenApiTypes.STR)},
    )
    @action(detail=False, pagination_class=None)
    def export(self, request: Request) -> HttpResponse:
        """Events as JSON lines, oldest first, 10,000 at a time; go on with the last id as `after`."""
        after = request.query_params.get("after", "0")
        start = int(after) if after.isascii() and after.isdigit() and len(after) < 19 else 0
        rows = self.filter_queryset(self.get_queryset()).filter(pk__gt=start).order_by("pk")
        lines = [
            json.dumps(EventDocument(event).data, ensure_ascii=False, separators=(",", ":"), default=str)
            for event in rows[:EXPORTED_AT_ONCE]
        ]
        return HttpResponse("".join(f"{line}\n" for line in lines), content_type="application/x-ndjson")
