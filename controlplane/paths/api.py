"""`/pools`, `/probe-series` and `/golden-outputs`: request paths as last read, how pools may be probed, the evidence of
probes, and what parity compares with."""

from __future__ import annotations

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
from controlplane.access.permissions import require
from controlplane.fleet.querysets import STALE_AFTER_S
from controlplane.paths import recording, services
from controlplane.paths.models import GoldenOutputs, Pool, ProbeSeries


class PoolSummary(serializers.ModelSerializer[Pool]):
    """A pool in a list. `age` is null before the first look."""

    cluster = serializers.CharField(source="cluster.name")
    age = serializers.FloatField(allow_null=True)
    stale = serializers.SerializerMethodField()
    sets = serializers.SerializerMethodField()
    router_ready = serializers.SerializerMethodField()
    guard = serializers.SerializerMethodField()

    class Meta:
        model = Pool
        fields: ClassVar = [
            "id", "uid", "cluster", "namespace", "name", "sets", "router_ready", "guard", "observed_at", "age",
            "stale", "gone_at", "version",
        ]  # fmt: skip

    def get_stale(self, pool: Any) -> bool:
        """Whether the picture is too old to act on."""
        return pool.age is None or pool.age > STALE_AFTER_S

    def get_sets(self, pool: Pool) -> list[str]:
        """Sets whose pods the pool selects."""
        return list(pool.path.get("sets") or ())

    def get_router_ready(self, pool: Pool) -> int:
        """Ready pods of the router."""
        return int((pool.path.get("router") or {}).get("ready") or 0)

    def get_guard(self, pool: Pool) -> str:
        """Whether clients can pin themselves to a revision: guarded, open, cannot-tell."""
        return str((pool.path.get("guard") or {}).get("verdict") or "cannot-tell")


class PoolDocument(PoolSummary):
    """A pool with its whole path and its settings.

    Planned shares are in `path.planned`, measured ones in `measured`: empty where the cluster has no metric source;
    else with `state` (value, no-traffic, no-data, not-exposed) and `reason`, and with a value `shares`, `agreement`
    with the plan over `window_s` seconds, and the KV `links` by revision. `measured_age` in seconds, null before the
    first reading. Pairs are aggregates: from metrics nobody knows which prefill served which decode.
    """

    path = serializers.JSONField()
    settings = serializers.JSONField()
    measured = serializers.JSONField()
    measured_age = serializers.FloatField(allow_null=True)

    class Meta(PoolSummary.Meta):
        fields: ClassVar = [
            *PoolSummary.Meta.fields,
            "path",
            "settings",
            "measured",
            "measured_at",
            "measured_age",
        ]


class PoolSettingsBody(serializers.Serializer[Any]):
    """What to change of the settings; what is left out stays."""

    settings = serializers.DictField()


class PoolViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Pool]):
    """Pools: one served model endpoint each."""

    queryset = Pool.objects.none()
    filterset_fields: ClassVar = ["cluster__name", "namespace", "name", "uid"]
    audited_as: ClassVar = {"partial_update": "pool.set_settings"}
    audited_kind = "pool"

    def get_queryset(self) -> QuerySet[Pool]:
        """Pools that exist and that the caller may see, by name."""
        rows = Pool.objects.with_age().visible_to(self.request.user).select_related("cluster")
        rows = rows.present().order_by("cluster__name", "namespace", "name", "id")
        return rows.defer("measured") if self.action == "list" else rows

    def get_serializer_class(self) -> Any:
        """The list is short, one pool is whole."""
        return PoolSummary if self.action == "list" else PoolDocument

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """One pool with its ETag."""
        pool = self.get_object()
        return with_etag(Response(PoolDocument(pool).data), pool.version)

    @extend_schema(request=PoolSettingsBody, responses=PoolDocument)
    @conditional
    def partial_update(self, request: Request, pk: str) -> Response:
        """Say how the pool may be probed."""
        pool = self.get_object()
        require(request.user, "plan.edit", cluster=pool.cluster.name, namespace=pool.namespace)
        body = PoolSettingsBody(data=request.data)
        body.is_valid(raise_exception=True)
        services.set_pool_settings(
            pool_id=pool.pk,
            version=expected_version(request),
            changes=body.validated_data["settings"],
            actor=actor_of(request),
        )
        return self.retrieve(request)


class SeriesSummary(serializers.ModelSerializer[ProbeSeries]):
    """A probe series in a list."""

    class Meta:
        model = ProbeSeries
        fields: ClassVar = [
            "id", "pool", "kind", "subject_kind", "subject_id", "key", "revision", "state", "verdict", "problem",
            "created_at", "finished_at", "pruned_at",
        ]  # fmt: skip


class SeriesDocument(SeriesSummary):
    """A probe series with every request that was sent: the evidence."""

    class Meta(SeriesSummary.Meta):
        fields: ClassVar = [*SeriesSummary.Meta.fields, "plan", "results"]


class GoldenSummary(serializers.ModelSerializer[GoldenOutputs]):
    """Golden outputs in a list. `verified_by` names who vouches for them, as [{kind, id}] of persons and combinations;
    with nobody they are compared with no more."""

    verified_by = serializers.JSONField()

    class Meta:
        model = GoldenOutputs
        fields: ClassVar = [
            "id", "pool", "series", "revision", "model", "prompt_set", "digest", "verified_by", "verified_at",
            "revoked_reason", "recorded_at", "version",
        ]  # fmt: skip


class GoldenDocument(GoldenSummary):
    """Golden outputs with their answers: by prompt the salt in its text, and each answer with its tokens, natural
    log-probabilities and the likeliest other tokens. The digest covers model, prompt set and answers."""

    answers = serializers.JSONField()

    class Meta(GoldenSummary.Meta):
        fields: ClassVar = [*GoldenSummary.Meta.fields, "answers"]


class GoldenBody(serializers.Serializer[Any]):
    """Why somebody may rely on them, or may not any more."""

    reason = serializers.CharField(max_length=2000)


class SeriesViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[ProbeSeries]):
    """Series of probes, newest first."""

    queryset = ProbeSeries.objects.none()
    filterset_fields: ClassVar = ["pool", "kind", "subject_kind", "subject_id", "revision", "state"]
    lookup_value_regex = r"[0-9]{1,18}"
    audited_as: ClassVar = {"record_golden": "pool.record_golden"}
    audited_kind = "series"

    def get_queryset(self) -> QuerySet[ProbeSeries]:
        """Series of pools that the caller may see."""
        rows = ProbeSeries.objects.visible_to(self.request.user).order_by("-id")
        return rows.defer("plan", "results") if self.action == "list" else rows

    def get_serializer_class(self) -> Any:
        """The list is short, one series is whole."""
        return SeriesSummary if self.action == "list" else SeriesDocument

    @extend_schema(request=GoldenBody, responses={201: GoldenSummary})
    @action(detail=True, methods=["post"], url_path="record-golden")
    @idempotent
    def record_golden(self, request: Request, pk: str) -> Response:
        """Vouch for the answers of a parity series: parity of the pool is compared with them from now on."""
        series = self.get_object()
        require(
            request.user,
            "combination.manage",
            cluster=series.pool.cluster.name,
            namespace=series.pool.namespace,
        )
        sent = GoldenBody(data=request.data)
        sent.is_valid(raise_exception=True)
        golden = recording.record_golden(
            series_id=series.pk,
            reason=sent.validated_data["reason"],
            user=cast(User, request.user),
            actor=actor_of(request),
        )
        shown = Response(GoldenSummary(golden).data, status.HTTP_201_CREATED)
        return with_etag(shown, golden.version)


class GoldenViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[GoldenOutputs]):
    """Golden outputs: answers of a revision that somebody vouches for, newest first."""

    queryset = GoldenOutputs.objects.none()
    filterset_fields: ClassVar = ["pool", "series", "revision", "model", "prompt_set"]
    lookup_value_regex = r"[0-9]{1,18}"
    audited_as: ClassVar = {"revoke": "pool.revoke_golden"}
    audited_kind = "golden-outputs"

    def get_queryset(self) -> QuerySet[GoldenOutputs]:
        """Golden outputs of pools that the caller may see."""
        rows = GoldenOutputs.objects.visible_to(self.request.user).order_by("-id")
        return rows.defer("answers") if self.action == "list" else rows.select_related("pool__cluster")

    def get_serializer_class(self) -> Any:
        """The list is short, one has its answers."""
        return GoldenSummary if self.action == "list" else GoldenDocument

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """One with its ETag."""
        golden = self.get_object()
        return with_etag(Response(GoldenDocument(golden).data), golden.version)

    @extend_schema(request=GoldenBody, responses=GoldenSummary)
    @action(detail=True, methods=["post"])
    @conditional
    @idempotent
    def revoke(self, request: Request, pk: str) -> Response:
        """Take it out of use, whoever vouched for it."""
        pool = self.get_object().pool
        require(request.user, "combination.manage", cluster=pool.cluster.name, namespace=pool.namespace)
        sent = GoldenBody(data=request.data)
        sent.is_valid(raise_exception=True)
        golden = recording.revoke_golden(
            golden_id=int(pk),
            version=expected_version(request),
            reason=sent.validated_data["reason"],
            actor=actor_of(request),
        )
        return with_etag(Response(GoldenSummary(golden).data), golden.version)


def routes(router: DefaultRouter) -> None:
    """Addresses of this room."""
    router.register("pools", PoolViewSet, basename="pool")
    router.register("probe-series", SeriesViewSet, basename="probe-series")
    router.register("golden-outputs", GoldenViewSet, basename="golden-outputs")
