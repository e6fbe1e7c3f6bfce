"""`/clusters`, `/workloads` and `/revisions`: what has been seen, with its age. Nothing here asks a
cluster."""

from __future__ import annotations

import hmac
from typing import Any, ClassVar

from django.conf import settings
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import DefaultRouter

from controlplane.access.actors import actor_of
from controlplane.access.etags import conditional, expected_version, with_etag
from controlplane.access.idempotency import idempotent
from controlplane.access.permissions import require
from controlplane.fleet import services
from controlplane.fleet.models import Cluster, Revision, Workload
from controlplane.fleet.querysets import STALE_AFTER_S
from controlplane.fleet.rollout_state import STATES
from policy.canonical import redact


def routes(router: DefaultRouter) -> None:
    """Add this room's addresses."""
    router.register("clusters", ClusterViewSet, basename="cluster")
    router.register("workloads", WorkloadViewSet, basename="workload")
    router.register("revisions", RevisionViewSet, basename="revision")


class _Aged(serializers.Serializer[Any]):
    """Facts seen by a watch say how old they are."""

    age = serializers.FloatField(
        read_only=True, allow_null=True, help_text="Seconds since the watch was last current; null: never."
    )
    stale = serializers.SerializerMethodField()

    def get_stale(self, row: Any) -> bool:
        """Too old to act on."""
        return row.age is None or row.age > STALE_AFTER_S


class ClusterDocument(_Aged, serializers.ModelSerializer[Cluster]):
    """A cluster: whether this installation may write to it, and how current its picture is."""

    class Meta:
        model = Cluster
        fields = [
            "id",
            "name",
            "context",
            "environment",
            "writes",
            "writes_reason",
            "lease_transitions",
            "kubernetes_version",
            "lws_version",
            "observed_at",
            "age",
            "stale",
            "problem",
            "metrics_url",
            "metrics_options",
            "version",
            "created_at",
        ]


class ClusterBody(serializers.Serializer[Any]):
    """A new cluster: `context` names its entry in the kubeconfig of workers and watchers."""

    name = serializers.SlugField(max_length=63)
    context = serializers.CharField(max_length=253)  # type: ignore[assignment]  # also a property of serializers
    environment = serializers.ChoiceField(choices=Cluster.Environment.choices)


class ClusterChanges(serializers.Serializer[Any]):
    """What to change of a cluster; what is left out stays.

    `metrics_url`: base address of a Prometheus, empty for none; never with credentials. `metrics_options`: how
    names look there, as a whole: `prefix` and `router_prefix` before metric names, `labels` (our words
    `namespace`, `set`, `slice`, `role`, `revision`, `pod` → label names), `headers` (names; their values are
    files that workers hold), `verify_tls`.
    """

    metrics_url = serializers.CharField(max_length=500, allow_blank=True, required=False)
    metrics_options = serializers.DictField(required=False)


class ClusterViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Cluster]):
    """Clusters. Administrators add them by the name of a kubeconfig context."""

    queryset = Cluster.objects.none()
    serializer_class = ClusterDocument
    filterset_fields: ClassVar = ["name", "environment", "writes"]
    audited_as = {
        "create": "cluster.register",
        "recheck": "cluster.recheck",
        "partial_update": "cluster.set_metric_source",
    }
    audited_kind = "cluster"

    def get_queryset(self) -> QuerySet[Cluster]:
        """Those that the caller may see, by name."""
        return Cluster.objects.with_age().visible_to(self.request.user).order_by("name")

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """One cluster with its ETag."""
        cluster = self.get_object()
        return with_etag(Response(ClusterDocument(cluster).data), cluster.version)

    @extend_schema(request=ClusterBody, responses={201: ClusterDocument})
    @idempotent
    def create(self, request: Request) -> Response:
        """Add a cluster. Its watch begins within seconds, its right to write is looked at by the next
        sweep."""
        require(request.user, "cluster.manage")
        body = ClusterBody(data=request.data)
        body.is_valid(raise_exception=True)
        cluster = services.register_cluster(**body.validated_data, actor=actor_of(request))
        shown = Cluster.objects.with_age().get(pk=cluster.pk)
        return with_etag(Response(ClusterDocument(shown).data, status.HTTP_201_CREATED), shown.version)

    @extend_schema(request=ClusterChanges, responses=ClusterDocument)
    @conditional
    def partial_update(self, request: Request, pk: str) -> Response:
        """Say where the cluster's numbers come from."""
        cluster = self.get_object()
        require(request.user, "cluster.manage", cluster=cluster.name)
        body = ClusterChanges(data=request.data)
        body.is_valid(raise_exception=True)
        services.set_metric_source(
            cluster_id=cluster.pk,
            version=expected_version(request),
            url=body.validated_data.get("metrics_url"),
            options=body.validated_data.get("metrics_options"),
            actor=actor_of(request),
        )
        return self.retrieve(request)

    @extend_schema(request=None, responses=ClusterDocument)
    @action(detail=True, methods=["post"])
    @idempotent
    def recheck(self, request: Request, pk: str) -> Response:
        """Have the right to write looked at again; until then nothing is written."""
        cluster = self.get_object()
        require(request.user, "cluster.manage", cluster=cluster.name)
        services.recheck_cluster(cluster_id=cluster.pk, actor=actor_of(request))
        return Response(ClusterDocument(self.get_object()).data)


class RoleHeadline(serializers.Serializer[Any]):
    """Groups of one role over all slices and revisions; `desired` is null where an outside scaler decides."""

    role = serializers.CharField()
    desired = serializers.IntegerField(allow_null=True)
    wanted = serializers.IntegerField()
    ready = serializers.IntegerField()


class WorkloadDocument(_Aged, serializers.ModelSerializer[Workload]):
    """A DisaggregatedSet in a list."""

    cluster = serializers.CharField(source="cluster.name")
    state = serializers.ChoiceField(choices=STATES)
    roles = serializers.SerializerMethodField()
    revisions = serializers.SerializerMethodField()
    slices = serializers.SerializerMethodField()
    waiting_since = serializers.SerializerMethodField()

    class Meta:
        model = Workload
        fields = [
            "id",
            "uid",
            "cluster",
            "namespace",
            "name",
            "state",
            "target_revision",
            "roles",
            "revisions",
            "slices",
            "waiting_since",
            "observed_at",
            "age",
            "stale",
            "gone_at",
        ]

    @extend_schema_field(RoleHeadline(many=True))
    def get_roles(self, row: Workload) -> list[Any]:
        """In the set's order."""
        return list(row.headline.get("roles", ()))

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_revisions(self, row: Workload) -> list[str]:
        """Labels that have groups."""
        return list(row.headline.get("revisions", ()))

    def get_slices(self, row: Workload) -> int:
        """How many copies the set asks for."""
        return int(row.headline.get("slices", 1))

    @extend_schema_field(serializers.DateTimeField(allow_null=True))
    def get_waiting_since(self, row: Workload) -> str | None:
        """Since when the group that has waited longest is not ready."""
        found: str | None = row.headline.get("waiting_since")
        return found


class WorkloadDetail(WorkloadDocument):
    """A DisaggregatedSet with slices, revisions, roles, groups and pods, and why it is in its state."""

    summary = serializers.JSONField()

    class Meta(WorkloadDocument.Meta):
        fields = [*WorkloadDocument.Meta.fields, "summary"]


class WorkloadViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Workload]):
    """DisaggregatedSets as last observed."""

    queryset = Workload.objects.none()
    filterset_fields: ClassVar = {
        "cluster__name": ["exact"],
        "namespace": ["exact"],
        "name": ["exact", "contains"],
        "state": ["exact", "in"],
        "gone_at": ["isnull"],
    }

    def get_queryset(self) -> QuerySet[Workload]:
        """Those that the caller may see, by cluster, namespace and name. Lists leave out what is gone unless
        `gone_at__isnull` is given; one set can be read whether it is gone or not."""
        rows = Workload.objects.with_age().visible_to(self.request.user).select_related("cluster")
        if self.action == "list":
            rows = rows.defer("summary")
            if "gone_at__isnull" not in self.request.query_params:
                rows = rows.present()
        return rows.order_by("cluster__name", "namespace", "name", "id")

    def get_serializer_class(self) -> Any:
        """The list is short, one set is whole."""
        return WorkloadDocument if self.action == "list" else WorkloadDetail


class RevisionDocument(serializers.ModelSerializer[Revision]):
    """One incarnation of a revision in a list. `recorded`: its roles are known, so one can go back to it."""

    workload = serializers.IntegerField(source="workload_id")
    recorded = serializers.BooleanField()

    class Meta:
        model = Revision
        fields = ["id", "workload", "label", "started_at", "ended_at", "roles_digest", "images", "recorded"]


class RevisionDetail(RevisionDocument):
    """With the recorded roles, whole and in order; values of environment variables as salted hashes."""

    roles = serializers.SerializerMethodField()

    class Meta(RevisionDocument.Meta):
        fields = [*RevisionDocument.Meta.fields, "roles"]

    @extend_schema_field(serializers.JSONField(allow_null=True))
    def get_roles(self, row: Revision) -> Any:
        """Under one salt per workload, so that its revisions can be compared."""
        message = f"workload:{row.workload_id}".encode()
        return redact(row.roles, salt=hmac.digest(settings.SECRET_KEY.encode(), message, "sha256"))


class RevisionViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Revision]):
    """Revision incarnations, newest first."""

    queryset = Revision.objects.none()
    filterset_fields: ClassVar = {"workload": ["exact"], "label": ["exact"], "ended_at": ["isnull"]}

    def get_queryset(self) -> QuerySet[Revision]:
        """Those of sets that the caller may see."""
        rows = Revision.objects.with_recorded().visible_to(self.request.user)
        return (rows if self.action == "list" else rows.defer(None)).order_by("-started_at", "-id")

    def get_serializer_class(self) -> Any:
        """The list is short, one revision has its roles."""
        return RevisionDocument if self.action == "list" else RevisionDetail
