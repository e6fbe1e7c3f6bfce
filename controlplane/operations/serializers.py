"""Shapes of operations in the API."""

from __future__ import annotations

import functools
from datetime import datetime
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.audit.clock import database_now
from controlplane.operations.models import FINISHED, Operation, OperationTarget, Run, Step
from controlplane.operations.verbs import DATABASE_BEHIND
from policy.rollout.machine import Phase, State, allowed_verbs
from policy.rollout.status_line import StatusFacts, status_line

Json = dict[str, Any]


class Reason(serializers.Serializer[Any]):
    """The body of a verb."""

    reason = serializers.CharField(max_length=2000, allow_blank=True, default="")


class StatedReason(serializers.Serializer[Any]):
    """The body of a verb that nobody should do without saying why."""

    reason = serializers.CharField(max_length=2000)


class StatusShape(serializers.Serializer[Any]):
    """The first line of an operation: what it waits for, since when, who can act, what happens otherwise."""

    what = serializers.CharField()
    since = serializers.CharField()
    who = serializers.CharField()
    otherwise = serializers.CharField()
    text = serializers.CharField()


class StepShape(serializers.ModelSerializer[Step]):
    """One step."""

    class Meta:
        model = Step
        fields = ["index", "name", "args", "state", "attempt", "first_claimed_at", "done_at", "result"]


class TargetShape(serializers.ModelSerializer[OperationTarget]):
    """One thing that the operation has taken."""

    class Meta:
        model = OperationTarget
        fields = ["kind", "uid", "released"]


class GateShape(serializers.Serializer[Any]):
    """One gate: its verdict (green, red, not-evaluable) with the number, the limit and what both rest on."""

    id = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]
    verdict = serializers.CharField()
    reason = serializers.CharField()
    sentence = serializers.CharField()
    next_action = serializers.CharField()
    value = serializers.FloatField(allow_null=True)
    limit = serializers.FloatField(allow_null=True)
    samples = serializers.IntegerField()
    age_s = serializers.FloatField(allow_null=True)
    required = serializers.BooleanField()  # type: ignore[assignment]
    exempt = serializers.CharField()
    evidence = serializers.CharField()
    window_s = serializers.IntegerField()
    versions = serializers.ListField(child=serializers.CharField())
    queries = serializers.ListField(child=serializers.CharField())


class GatesShape(serializers.Serializer[Any]):
    """All gates at one place of the rollout. `since`: samples count from then, null: as far as the windows reach."""

    at = serializers.DateTimeField()
    place = serializers.CharField()
    verdict = serializers.CharField()
    sentence = serializers.CharField()
    next_action = serializers.CharField()
    since = serializers.DateTimeField(allow_null=True)
    since_why = serializers.CharField()
    gates = GateShape(many=True)


class OperationSummary(serializers.ModelSerializer[Operation]):
    """One operation in a list."""

    cluster = serializers.CharField(source="cluster.name")
    started_by = serializers.CharField(source="started_by.username")
    status = serializers.SerializerMethodField()
    verbs = serializers.SerializerMethodField()

    class Meta:
        model = Operation
        fields = [
            "id",
            "kind",
            "subject_id",
            "digest",
            "cluster",
            "namespace",
            "title",
            "reason",
            "state",
            "phase",
            "status",
            "finding",
            "waits_for",
            "verbs",
            "attempts",
            "started_by",
            "started_at",
            "changed_at",
            "finished_at",
            "version",
        ]

    @functools.cached_property
    def _now(self) -> datetime:
        return database_now()

    @extend_schema_field(StatusShape)
    def get_status(self, operation: Operation) -> Json:
        """The status line, in parts and as text."""
        line = status_line(status_facts(operation, self._now))
        return {
            "what": line.what,
            "since": line.since,
            "who": line.who,
            "otherwise": line.otherwise,
            "text": line.text,
        }

    def get_verbs(self, operation: Operation) -> list[str]:
        """What a person with the right to steer can ask for now."""
        return possible_verbs(operation)


class OperationDetail(OperationSummary):
    """One operation whole."""

    steps = StepShape(many=True)
    targets = TargetShape(many=True)
    gates = serializers.SerializerMethodField()

    class Meta(OperationSummary.Meta):
        fields = [
            *OperationSummary.Meta.fields,
            "gates",
            "abort_step",
            "promoted",
            "fence",
            "not_before",
            "steps",
            "targets",
        ]

    @extend_schema_field(GatesShape)
    def get_gates(self, operation: Operation) -> Json | None:
        """The gates as last judged, null before that and for kinds of change without gates."""
        return operation.memory.get("gates") or None


class RunShape(serializers.ModelSerializer[Run]):
    """Work of a worker outside an operation."""

    class Meta:
        model = Run
        fields = ["id", "kind", "state", "result", "problem", "attempts", "created_at", "done_at"]


def status_facts(operation: Operation, now: datetime) -> StatusFacts:
    """What the status line of an operation is made of."""
    waits, finding = operation.waits_for, operation.finding
    began = finding.get("since") or waits.get("since")
    since = datetime.fromisoformat(began) if began else operation.changed_at
    until = datetime.fromisoformat(waits["until"]) if waits.get("until") else None
    return StatusFacts(
        state=State(operation.state),
        phase=Phase(operation.phase),
        now=now,
        since=operation.finished_at or since,
        what=waits.get("what", ""),
        who=waits.get("who", ""),
        until=until,
        then=waits.get("then", ""),
        finding=finding.get("sentence", ""),
        next_action=finding.get("next_action", ""),
    )


def possible_verbs(operation: Operation) -> list[str]:
    """The verbs that the table and this operation's kind and state allow, in the order of the buttons."""
    if operation.state in FINISHED:
        return []
    impossible = set()
    if not operation.waits_for.get("hold_key"):
        impossible.add("promote")
    if not operation.stop_step:
        impossible.add("stop")
    if not operation.adopt_step and operation.finding.get("code") != DATABASE_BEHIND:
        impossible.add("adopt")
    allowed = allowed_verbs(operation.state, operation.phase)
    return [str(verb) for verb in allowed if str(verb) not in impossible]
