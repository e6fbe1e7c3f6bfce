"""Shapes of combinations, restores and pauses. Env values and contents of ConfigMaps are shown as salted hashes."""

from __future__ import annotations

from typing import Any, ClassVar

from rest_framework import serializers

from controlplane.operations.models import AutomationPause
from controlplane.recovery.models import Combination, Restore
from controlplane.recovery.secrecy import shown

Json = dict[str, Any]


class CombinationSummary(serializers.ModelSerializer[Combination]):
    """A row of the list."""

    cluster = serializers.CharField(source="cluster.name", read_only=True)

    class Meta:
        model = Combination
        fields: ClassVar = [
            "id", "cluster", "namespace", "name", "uid", "number", "revision", "digest", "state", "pinned",
            "reason", "evidence", "captured_at", "captured_by", "verified_at", "revoked_reason", "version",
        ]  # fmt: skip


class CombinationDetail(CombinationSummary):
    """One combination, whole. `golden` names the golden outputs that were given when it was proved, by id and digest;
    their answers are read there."""

    document = serializers.SerializerMethodField()
    golden = serializers.JSONField()

    class Meta(CombinationSummary.Meta):
        fields: ClassVar = [*CombinationSummary.Meta.fields, "document", "golden"]

    def get_document(self, found: Combination) -> Json:
        """What it holds."""
        return shown(found.document)


class WhyBody(serializers.Serializer[Any]):
    """A reason that has to be given."""

    reason = serializers.CharField(max_length=2000)


class RestoreOptions(serializers.Serializer[Any]):
    """What a person agrees to: an outage where traffic has to be drained, and outside writers by name."""

    accept_outage = serializers.BooleanField(required=False, default=False)
    writers = serializers.ListField(
        child=serializers.CharField(max_length=300), required=False, default=list, max_length=20
    )


class RestoreRequestBody(serializers.Serializer[Any]):
    """Ask for the approval of a restore that needs one."""

    reason = serializers.CharField(max_length=2000)
    options = RestoreOptions(required=False)


class RestoreBody(RestoreRequestBody):
    """Start a restore; `confirm` is the name of the set or of one of its pools, typed by a person."""

    confirm = serializers.CharField(max_length=253)


class PartShape(serializers.Serializer[Any]):
    """One part of a restore: done, or not done."""

    name = serializers.CharField()
    reason = serializers.CharField()
    names = serializers.ListField(child=serializers.CharField())
    way = serializers.CharField(allow_blank=True)
    done = serializers.BooleanField()


class RestoreShape(serializers.ModelSerializer[Restore]):
    """One restore."""

    cluster = serializers.CharField(source="combination.cluster.name", read_only=True)
    namespace = serializers.CharField(source="combination.namespace", read_only=True)
    name = serializers.CharField(source="combination.name", read_only=True)
    number = serializers.IntegerField(source="combination.number", read_only=True)
    state = serializers.CharField(source="operation.state", read_only=True)
    review_state = serializers.CharField(source="review.state", read_only=True, allow_null=True, default=None)
    parts = serializers.SerializerMethodField()
    bits = serializers.SerializerMethodField()

    class Meta:
        model = Restore
        fields: ClassVar = [
            "id", "operation", "combination", "number", "cluster", "namespace", "name", "state", "superseded",
            "review", "review_state", "options", "parts", "bits", "document", "digest", "opened_at",
            "closed_at",
        ]  # fmt: skip

    def get_parts(self, found: Restore) -> list[Json]:
        """Parts in their order; empty until the check has looked."""
        return parts_of(found.operation.memory)

    def get_bits(self, found: Restore) -> Json:
        """same-bits, same-template or cannot-tell with what; empty until it is verified."""
        return dict(found.operation.memory.get("bits") or {})


def parts_of(memory: Json) -> list[Json]:
    """Done and not done, part by part."""
    done = set(memory.get("parts_done") or ())
    order = (memory.get("order") or {}).get("parts") or ()
    return [{**part, "done": index in done} for index, part in enumerate(order)]


class PauseShape(serializers.ModelSerializer[AutomationPause]):
    """A set whose automation is paused, or was."""

    cluster = serializers.CharField(source="cluster.name", read_only=True)
    resumed_by = serializers.CharField(source="resumed_by.username", read_only=True, default=None)

    class Meta:
        model = AutomationPause
        fields: ClassVar = [
            "id", "cluster", "namespace", "name", "reason", "since", "resumed_at", "resumed_by", "version",
        ]  # fmt: skip
