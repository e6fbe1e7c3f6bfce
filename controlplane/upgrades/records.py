"""Update records: the document of one change, opened by start and closed once with its evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from controlplane.audit.actor import worker
from controlplane.audit.redaction import plain
from controlplane.audit.services import record_event
from controlplane.fleet.models import Revision
from controlplane.operations.claims import lock_claim
from controlplane.operations.clock import brief_transaction, database_now
from controlplane.operations.models import Operation, Step
from controlplane.upgrades.models import Plan, UpdateRecord
from policy.canonical import digest

Json = dict[str, Any]
NOT_EXAMINED = "not examined"


def open_record(*, operation: Operation, plan: Plan, now: datetime) -> UpdateRecord:
    """The record as far as it is known at start. What Lockstep does not look at yet is named as such."""
    content, memory = plan.content or {}, operation.memory
    document = {
        "version": 1,
        "set": {"cluster": operation.cluster.name, "namespace": memory["namespace"], "name": memory["name"]},
        "model_artifact": model_artifact(content["roles_after"]),
        "revisions": {
            role["name"]: {"before": memory["old"], "after": ""} for role in content["roles_after"]
        },
        "transfer_compatibility": (content.get("path") or {}).get("transfer") or NOT_EXAMINED,
        "traffic_policy_version": _router_configs(content.get("path") or {}) or NOT_EXAMINED,
        "recovery_combination": {"before": None, "after": None},
        "path_evidence": {"state": NOT_EXAMINED, "why": "the operation runs"},
        "gates": NOT_EXAMINED,
        "plan": {"id": plan.pk, "digest": plan.digest},
        "profile": plan.options["profile"],
        "goes_back_to": _goes_back_to(plan),
        "confirmation": {},
    }
    return UpdateRecord.objects.create(operation=operation, plan=plan, document=document, opened_at=now)


def close_record(*, operation_id: int, fence: int, outcome: str, now: datetime) -> None:
    """Write outcome, revisions, images and steps into the record, digest it, audit it.

    A record that is closed with this outcome stays as it is; one whose operation was aborted after all is closed
    again. Raises Refused `overtaken` for a claim that is over."""
    with brief_transaction():
        lock_claim(operation_id=operation_id, fence=fence)
        found = UpdateRecord.objects.select_for_update(no_key=True).filter(operation_id=operation_id).first()
        if found is None or found.outcome == outcome:
            return
        _close(found, Operation.objects.get(pk=operation_id), outcome, now)


def close_superseded() -> int:
    """Close the records of upgrades that another operation took over: they run no last step of their own. How many."""
    left = UpdateRecord.objects.filter(closed_at=None, operation__state=Operation.State.SUPERSEDED)
    closed = 0
    for key in left.values_list("pk", flat=True):
        with brief_transaction():
            open_ones = UpdateRecord.objects.select_for_update(no_key=True, skip_locked=True)
            found = open_ones.filter(pk=key, closed_at=None).first()
            if found is None:
                continue
            operation = Operation.objects.get(pk=found.operation_id)
            _close(found, operation, str(operation.state), operation.finished_at or database_now())
            closed += 1
    return closed


def _close(found: UpdateRecord, operation: Operation, outcome: str, now: datetime) -> None:
    before = {"outcome": found.outcome, "digest": found.digest} if found.closed_at else None
    memory, document = operation.memory, dict(found.document)
    for entry in document["revisions"].values():
        entry["after"] = memory.get("new", "") if outcome == "succeeded" else memory["old"]
    document["recovery_combination"] = _combinations(operation.pk)
    document["path_evidence"] = _path_evidence(memory.get("path_evidence") or {})
    document["gates"] = memory.get("gate_evidence") or NOT_EXAMINED
    document["confirmation"] = {
        "outcome": outcome,
        "readiness": outcome == "succeeded",
        "images": memory.get("images") if outcome == "succeeded" else memory.get("images_after_abort"),
        "steps": [
            {"name": step.name, "args": step.args, "done_at": step.done_at and step.done_at.isoformat()}
            for step in Step.objects.filter(operation=operation, state=Step.State.DONE).order_by("index")
        ],
    }
    found.document, found.digest = document, digest(plain(document))
    found.outcome, found.closed_at = outcome, now
    found.save(update_fields=["document", "digest", "outcome", "closed_at"])
    record_event(
        actor=worker("upgrade", on_behalf_of=operation.started_by.username),
        action="update-record.close",
        target_kind="update-record",
        target_id=str(found.pk),
        before=before,
        after={"outcome": outcome, "digest": found.digest},
    )


def _router_configs(path: Mapping[str, Any]) -> Json:
    """Digest of the router's configuration by pool."""
    return {pool["name"]: pool["router_config"] for pool in path.get("pools") or ()}


def _combinations(operation_id: int) -> Json:
    """What was captured before the change, and after it; None where the operation ended earlier."""
    captures = Step.objects.filter(
        operation_id=operation_id, name="recovery.capture", state=Step.State.DONE
    ).order_by("index")
    found: list[Json] = [step.result for step in captures]
    return {"before": found[0] if found else None, "after": found[1] if len(found) > 1 else None}


def _path_evidence(places: Mapping[str, Any]) -> Json:
    """Where the path was looked at, and what was seen; or why it was not."""
    if any(place["series"] for place in places.values()):
        return {"state": "examined", "places": dict(places)}
    why = next((str(place["result"]) for place in places.values()), "the operation ended before")
    return {"state": NOT_EXAMINED, "why": why.removeprefix(f"{NOT_EXAMINED}: ")}


def exported(record: UpdateRecord) -> Json:
    """A record as one document that can be kept elsewhere, with the digest of all of it."""
    document = {
        "kind": "update-record",
        "version": 1,
        "operation": record.operation_id,
        "outcome": record.outcome,
        "opened_at": record.opened_at.isoformat(),
        "closed_at": record.closed_at.isoformat() if record.closed_at else None,
        "record": plain(record.document),
    }
    return {**document, "digest": digest(document)}


def _goes_back_to(plan: Plan) -> str | None:
    """The label of the recorded revision that the plan brings back; None for a change that goes on."""
    if "back_to" not in plan.draft:
        return None
    return str(Revision.objects.get(pk=plan.draft["back_to"]).label)


def model_artifact(roles: Sequence[Mapping[str, Any]]) -> Json:
    """role → image and the model that its arguments name (`--model X`, `--model=X`, `serve X`)."""
    found: Json = {}
    for role in roles:
        pod = role["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]
        container = pod["containers"][0]
        arguments = [*container.get("command", []), *container.get("args", [])]
        found[role["name"]] = {"image": container["image"], "model": _model(arguments)}
    return found


def _model(arguments: Sequence[str]) -> str | None:
    for position, argument in enumerate(arguments):
        following = arguments[position + 1] if position + 1 < len(arguments) else None
        if argument.startswith("--model="):
            return argument.removeprefix("--model=")
        if argument == "--model" or (argument == "serve" and following and not following.startswith("-")):
            return following
    return None
