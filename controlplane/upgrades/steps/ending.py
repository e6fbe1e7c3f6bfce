"""The end of an upgrade: verify under the standing hold, record, release."""

from __future__ import annotations

from typing import Any

from controlplane.approvals.services import mark_stale
from controlplane.audit.actor import worker
from controlplane.fleet.services import record_revision
from controlplane.fleet.target import templates_digest
from controlplane.holds.images import images_by_role as images_by_role
from controlplane.holds.leftover import others_of
from controlplane.holds.live import read_parameter, read_pods
from controlplane.holds.parameter import is_holding, owner_of, released
from controlplane.kube.resources import CONFIG_MAPS
from controlplane.operations.claims import lock_claim
from controlplane.operations.clock import brief_transaction
from controlplane.operations.contract import Done, Finish, Hold, Outcome, PlannedStep, StepContext, Wait
from controlplane.upgrades.records import close_record
from controlplane.upgrades.steps.forward import altered
from controlplane.upgrades.steps.memory import foreign_write, is_ours, look, memory_of, plan_of

Json = dict[str, Any]


def pods_of(context: StepContext, revision: str) -> list[Json]:
    """Pods of one revision of the set."""
    memory = memory_of(context)
    return read_pods(context.kube, memory.namespace, memory.name, revision)


def verify(context: StepContext) -> Outcome:
    """A look: one revision serves, it is the approved one, complete and ready; what its pods really run is written
    down. The request path is another step's."""
    memory, live = memory_of(context), look(context)
    if finding := foreign_write(context, live) or altered(live, memory.new):
        return finding
    if leftovers := others_of(live, memory.new):
        return Wait(2, f"old groups to go: {', '.join('/'.join(key) for key in leftovers)}")
    target = dict(zip(memory.roles, memory.rows[-1].new, strict=True))
    short = [
        f"{role} {live.ready((s, memory.new, role))} of {count}"
        for s in memory.slices
        for role, count in target.items()
        if count and live.ready((s, memory.new, role)) != count
    ]
    if short and (context.now - context.first_claimed_at).total_seconds() >= float(
        memory.data["stuck_after"]
    ):
        return Hold(
            code="row-not-ready",
            sentence=f"After the last row not all groups stay ready: {', '.join(short)}.",
            next_action="Look at their pods, then retry; or abort, which is a rollout back.",
        )
    if short:
        return Wait(5, f"ready groups: {', '.join(short)}")
    images = images_by_role(pods_of(context, memory.new))
    mixed = [
        f"{role}/{name}" for role, cs in images.items() for name, c in cs.items() if len(c["image_ids"]) > 1
    ]
    if mixed:
        return Hold(
            code="mixed-images",
            sentence=f"Pods of one revision run different image IDs: {', '.join(sorted(mixed))}.",
            next_action="The tag moved between pulls: pin the digest and upgrade again, or abort.",
            facts={"images": images},
        )
    return Done(result={"revision": memory.new, "images": images}, remember={"images": images})


def record(context: StepContext) -> Outcome:
    """Keep the roles behind both labels, and close the update record with its evidence. Database only."""
    memory, plan = memory_of(context), plan_of(context)
    content = plan.content or {}
    for label, roles in ((memory.old, content["roles_before"]), (memory.new, content["roles_final"])):
        record_revision(
            workload=plan.workload,
            label=label,
            roles=roles,
            roles_digest=templates_digest(roles),
            images=memory.data.get("images", {})
            if label == memory.new
            else memory.data.get("images_before", {}),
            now=context.now,
        )
    close_record(operation_id=context.operation.id, fence=context.fence, outcome="succeeded", now=context.now)
    seen = (memory.data.get("path_evidence") or {}).get("end") or {}
    proved = bool(seen.get("series")) and seen["result"] == "green"
    # Known good is what was seen to serve: without it the combination stays a candidate.
    return Done(append=(PlannedStep("recovery.verify_captured"),) if proved else ())


def release(context: StepContext) -> Outcome:
    """Let the parameter go: the write that ends its purpose (last row, or old roles) was seen in effect."""
    memory = memory_of(context)
    parameter = read_parameter(context.kube, memory.namespace, memory.name)  # the set itself may be gone
    if parameter is not None and is_holding(parameter):
        if not is_ours(context, parameter):
            return Hold(
                code="foreign-hold",
                sentence=f"The parameter holds for {owner_of(parameter)}, not for this operation.",
                next_action="Find out who wrote it; then retry.",
            )
        context.kube.replace(CONFIG_MAPS, released(parameter, fence=context.fence))
    return Done(result={"released": parameter is not None}, remember={"holding": False})


def finish(context: StepContext, *, outcome: str, reason: str = "") -> Outcome:
    """Close the record where it is still open, and end; `reason` says why an abort ends as failed."""
    close_record(operation_id=context.operation.id, fence=context.fence, outcome=outcome, now=context.now)
    if outcome != "succeeded":  # what was approved has been tried: trying again is asked for again
        with brief_transaction():
            lock_claim(operation_id=context.operation.id, fence=context.fence)
            mark_stale(
                subject_kind="upgrades.plan",
                subject_id=str(context.operation.memory["plan"]),
                reason=f"Operation {context.operation.id} on this plan ended as {outcome}.",
                actor=worker("upgrade"),
            )
    return Finish(outcome, {"reason": reason} if reason else {})
