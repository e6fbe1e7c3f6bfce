"""Shapes of plans and update records. Rules are in the services; secrets are shown as salted hashes."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from controlplane.upgrades.models import Plan, UpdateRecord
from controlplane.upgrades.secrecy import redacted

Json = dict[str, Any]


class PlanSummary(serializers.ModelSerializer[Plan]):
    """A row of the list."""

    cluster = serializers.CharField(source="workload.cluster.name", read_only=True)
    namespace = serializers.CharField(source="workload.namespace", read_only=True)
    name = serializers.CharField(source="workload.name", read_only=True)
    requester = serializers.CharField(source="requester.username", read_only=True)
    risk = serializers.SerializerMethodField()
    blocking = serializers.SerializerMethodField()

    class Meta:
        model = Plan
        fields = [
            "id",
            "workload",
            "cluster",
            "namespace",
            "name",
            "title",
            "state",
            "risk",
            "blocking",
            "digest",
            "requester",
            "version",
            "created_at",
            "checked_at",
        ]

    def get_risk(self, plan: Plan) -> str:
        """Risk class, empty until checked."""
        return str((plan.bounds or {}).get("risk", ""))

    def get_blocking(self, plan: Plan) -> list[str]:
        """Ids of hazards that block."""
        return [hazard["id"] for hazard in plan.hazards if hazard["severity"] == "block"]


class PlanDetail(PlanSummary):
    """One plan, whole."""

    draft = serializers.SerializerMethodField()
    diff = serializers.SerializerMethodField()

    class Meta(PlanSummary.Meta):
        fields = [
            *PlanSummary.Meta.fields,
            "reason",
            "draft",
            "options",
            "problem",
            "diff",
            "base",
            "bounds",
            "rows",
            "hazards",
            "acknowledged",
            "run",
        ]

    def get_draft(self, plan: Plan) -> Json:
        """The draft as sent, env values as salted hashes."""
        shown: Json = redacted(plan.draft, plan_id=plan.pk)
        return shown

    def get_diff(self, plan: Plan) -> Json | None:
        """What changes: sentence, roles that roll, paths; null until checked."""
        return (plan.content or {}).get("diff")


class NewPlan(serializers.Serializer[Plan]):
    """What a new plan needs. A draft has one of `roles` (changes per role), `spec_roles` (the whole list) or
    `back_to` (id of a recorded revision)."""

    workload = serializers.IntegerField(min_value=1)
    title = serializers.CharField(max_length=300, required=False, default="")
    reason = serializers.CharField(max_length=5000)
    draft = serializers.DictField()
    options = serializers.DictField(required=False, default=dict)


class PlanChanges(serializers.Serializer[Plan]):
    """What an edit may change; what is left out stays."""

    title = serializers.CharField(max_length=300, required=False)
    reason = serializers.CharField(max_length=5000, required=False)
    draft = serializers.DictField(required=False)
    options = serializers.DictField(required=False)


class Acknowledgement(serializers.Serializer[Plan]):
    """Which warning was read."""

    hazard = serializers.CharField(max_length=80)


class Started(serializers.Serializer[Plan]):
    """What came into being."""

    operation = serializers.IntegerField()


class Requested(serializers.Serializer[Plan]):
    """The change request, and whether it is approved already."""

    change_request = serializers.IntegerField()
    state = serializers.CharField()


class UpdateRecordShape(serializers.ModelSerializer[UpdateRecord]):
    """The document of one change."""

    cluster = serializers.CharField(source="plan.workload.cluster.name", read_only=True)
    namespace = serializers.CharField(source="plan.workload.namespace", read_only=True)
    name = serializers.CharField(source="plan.workload.name", read_only=True)

    class Meta:
        model = UpdateRecord
        fields = [
            "id",
            "operation",
            "plan",
            "cluster",
            "namespace",
            "name",
            "outcome",
            "opened_at",
            "closed_at",
            "digest",
            "document",
        ]
