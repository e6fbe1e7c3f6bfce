"""The way up to the first row: hold at zero, prove it, write the approved roles, read the new revision."""

from __future__ import annotations

from typing import Any

from controlplane.approvals.services import approved_request
from controlplane.fleet.target import same_template, templates_digest
from controlplane.holds.guards import shipped_guards
from controlplane.holds.live import ChildCount, LiveSet, is_external, roles_digest
from controlplane.holds.parameter import is_holding
from controlplane.holds.private_services import service_for
from controlplane.holds.proof import guards_seen, prove_standing
from controlplane.holds.writer import foreign_hold
from controlplane.kube.errors import AlreadyExists, ObjectMissing
from controlplane.kube.resources import CONFIG_MAPS, DISAGGREGATED_SETS, LEADER_WORKER_SETS, SERVICES
from controlplane.operations.contract import Done, Hold, Outcome, PlannedStep, StepContext, Wait
from controlplane.operations.models import Operation
from controlplane.operations.orphans import operation_name
from controlplane.upgrades.steps.memory import (
    Memory,
    foreign_write,
    held_by_us,
    is_ours,
    look,
    memory_of,
    plan_of,
)
from controlplane.upgrades.steps.path_base import path_moved

Json = dict[str, Any]


def open_hold(context: StepContext) -> Outcome:
    """Floors = now, every new ceiling 0. Refuses where the live set is not the approved base."""
    memory, live = memory_of(context), look(context)
    if finding := foreign_write(context, live) or _not_the_base(context, live) or _not_approved(context):
        return finding
    if live.parameter is None:
        return Wait(1, "the hold parameter")
    if is_holding(live.parameter) and not is_ours(context, live.parameter):
        return foreign_hold(live.parameter)
    context.kube.replace(CONFIG_MAPS, held_by_us(context, live.parameter, memory.box()))
    return Done(
        result={"box": memory.box().as_data()},
        remember={
            "known_labels": sorted(live.labels()),
            "holding": True,
            "prove_above": context.fence,
            "guards_seen": guards_seen(
                context.kube, shipped_guards(), kept=memory.data.get("guards_seen") or {}, now=context.now
            ),
        },
    )


def _not_the_base(context: StepContext, live: LiveSet) -> Hold | None:
    """The live revision alone, at the counts that the rows start from, every group ready, in the slices and under the
    placement that were approved."""
    memory, base = memory_of(context), plan_of(context).base or {}
    if (live.slices, live.body["spec"].get("placementPolicy")) != (base["slices"], base["placement"]):
        return Hold(
            code="base-changed",
            sentence="The set's slices or placement policy are not the ones that were approved.",
            next_action="Abort (nothing was written yet) and check the plan again.",
        )
    if finding := path_moved(context, written=False):
        return finding
    if live.live_labels() != {memory.old}:
        seen = ", ".join(sorted(live.live_labels())) or "none"
        return Hold(
            code="base-changed",
            sentence=f"Revision {memory.old} alone should be live, seen: {seen}.",
            next_action="Abort (nothing was written yet) and check the plan again.",
            facts={"labels": sorted(live.live_labels())},
        )
    for slice_name in memory.slices:
        old, _ = memory.counts_at(0)
        for role, count in old.items():
            child = live.children.get((slice_name, memory.old, role))
            if count and (child is None or child.wanted != count):
                return Hold(
                    code="base-changed",
                    sentence=f"{role} has {child.wanted if child else 0} groups, the plan starts from {count}.",
                    next_action="Abort (nothing was written yet) and check the plan again.",
                )
            if count and child is not None and child.ready < count:
                return Hold(
                    code="base-changed",
                    sentence=f"{role} has {child.ready} of {count} groups ready: the rows count on all of them.",
                    next_action="Wait until they are ready and retry; or abort (nothing was written yet).",
                )
    return _scaled_otherwise(memory, live)


def _scaled_otherwise(memory: Memory, live: LiveSet) -> Hold | None:
    """What a role scaler asks for is where the rows end; in roles that are not sized from outside the roles say it."""
    goal = dict(zip(memory.roles, memory.rows[-1].new, strict=True))
    for role in live.roles:
        if is_external(role) and live.target(role) != goal.get(role["name"]):
            return Hold(
                code="base-changed",
                sentence=f"The scaler of {role['name']} asks for {live.target(role)} groups, the plan for"
                f" {goal.get(role['name'], 0)}.",
                next_action="Abort (nothing was written yet) and check the plan again.",
            )
    return None


def _not_approved(context: StepContext) -> Hold | None:
    plan = plan_of(context)
    if context.operation.memory.get("votes_needed") and not approved_request(
        subject_kind="upgrades.plan", subject_id=str(plan.pk), step="", attempt=0, digest=plan.digest
    ):
        return Hold(
            code="approval-gone",
            sentence="The approval of this plan no longer stands (expired, withdrawn or stale).",
            next_action="Abort (nothing was written yet), or get the approval again and retry.",
        )
    return None


def prove_hold(context: StepContext) -> Outcome:
    """The hold of this operation stands (controlplane/holds/proof). Fencing raises the number before each look, so
    that a number over the one that opened it can only come from a parameter that was written since."""
    memory = memory_of(context)
    return prove_standing(
        context.kube,
        look(context),
        memory.box(),
        operation=operation_name(context.operation.id),
        above=int(memory.data["prove_above"]),
        guards=shipped_guards(),
        kept=memory.data.get("guards_seen") or {},
        now=context.now,
        waited=(context.now - context.first_claimed_at).total_seconds(),
    )


def write_roles(context: StepContext) -> Outcome:
    """Replace `spec.roles` under the resourceVersion just read; server-side apply could reorder them."""
    memory, live = memory_of(context), look(context)
    after = (plan_of(context).content or {})["roles_after"]
    if roles_digest(live.roles) == roles_digest(after) and live.body["metadata"]["uid"] == memory.uid:
        return Done(result={"already_written": True}, remember={"expected": roles_digest(after)})
    if finding := (foreign_write(context, live) or _scaled_otherwise(memory, live) or _not_approved(context)):
        return finding
    body = {**live.body, "spec": {**live.body["spec"], "roles": after}}
    stored = context.kube.replace(DISAGGREGATED_SETS, body)
    if templates_digest(stored["spec"]["roles"]) != templates_digest(after):
        return Hold(
            code="stored-differs",
            sentence="The API server stored other templates than the approved ones.",
            next_action="Abort: a webhook or a new default changed the templates on the way.",
            remember={"expected": roles_digest(stored["spec"]["roles"])},
        )
    return Done(
        result={"resource_version": stored["metadata"]["resourceVersion"]},
        remember={"expected": roles_digest(stored["spec"]["roles"])},
    )


def read_revision(context: StepContext) -> Outcome:
    """Read the new revision's label off the sets that the controller made at 0, and compare their templates."""
    memory, live = memory_of(context), look(context)
    if finding := foreign_write(context, live):
        return finding
    strangers = _new_labels(memory, live)
    if len(strangers) > 1:
        return Hold(
            code="foreign-revision",
            sentence=f"More than one new revision exists: {', '.join(strangers)}.",
            next_action="Abort.",
            facts={"labels": strangers},
        )
    if missing := _not_made(memory, live, strangers):
        return still_missing(context, strangers, missing, PlannedStep("upgrades.read_revision"))
    label = strangers[0]
    if finding := altered(live, label):
        return finding
    return Done(result={"revision": label}, remember={"new": label, "new_seen_at": context.now.isoformat()})


def _not_made(memory: Memory, live: LiveSet, labels: list[str]) -> list[str]:
    """slice/role of every set that the controller has not made under any of the labels."""
    made = {(key[0], key[2]) for key in live.children if key[1] in labels}
    wanted = [(slice_name, role["name"]) for slice_name in memory.slices for role in live.roles]
    return [f"{slice_name}/{role}" for slice_name, role in wanted if (slice_name, role) not in made]


def _new_labels(memory: Memory, live: LiveSet) -> list[str]:
    """Labels that came after the hold; a drained leftover counts only where its templates are the approved ones."""
    specs = {role["name"]: role for role in live.roles}
    known = set(memory.data.get("known_labels", []))

    def approved(label: str) -> bool:
        return all(
            key[2] in specs and child_matches(child, specs[key[2]])
            for key, child in live.children.items()
            if key[1] == label
        )

    return sorted(label for label in live.labels() - {memory.old} if label not in known or approved(label))


def altered(live: LiveSet, label: str) -> Hold | None:
    """A finding where a set of this revision does not carry the approved template: the hold limits counts, and
    anybody with the right may still write into a child."""
    specs = {role["name"]: role for role in live.roles}
    for (slice_name, revision, role), child in sorted(live.children.items()):
        if revision == label and role in specs and not child_matches(child, specs[role]):
            return Hold(
                code="created-differs",
                sentence=f"{child.name} does not carry the approved template of {role} (slice {slice_name}).",
                next_action="Abort: another writer or another controller version is at work.",
            )
    return None


def child_matches(child: ChildCount, role: Json) -> bool:
    """Whether the controller made this set from the role as it stands in `spec.roles`."""
    return same_template(
        role["spec"]["leaderWorkerTemplate"], child.body["spec"]["leaderWorkerTemplate"], places_itself=True
    )


def still_missing(
    context: StepContext, strangers: list[str], missing: list[str], again: PlannedStep
) -> Outcome:
    """The new revision is not there for every role. The controller makes its sets only when there is none at all, so
    that an incomplete start never goes on by itself: it is cured once, then `again` is done."""
    waited = (context.now - context.first_claimed_at).total_seconds()
    patience = float(context.operation.memory["init_patience"])
    if waited < patience:
        return Wait(1, f"the controller to create {', '.join(missing)}")
    if strangers and not context.operation.memory.get("cured_init"):
        return Done(
            result={"partial_init": missing},
            append=(
                PlannedStep("upgrades.cure_partial_init", {"revision": strangers[0]}),
                again,
            ),
            remember={"cured_init": True},
        )
    return Hold(
        code="revision-not-created",
        sentence=f"The controller has not created {', '.join(missing)} within {patience:.0f} s.",
        next_action="Look at the LeaderWorkerSet manager and its webhooks, then retry; or abort.",
        facts={"missing": missing},
        remember={"cured_init": False},
    )


def cure_partial_init(context: StepContext, *, revision: str) -> Outcome:
    """Delete the new revision's sets so that the controller starts the rollout over; only while none has a group."""
    live = look(context)
    if finding := foreign_write(context, live):
        return finding
    if not _not_made(memory_of(context), live, [revision]):
        return Done(result={"deleted": []})  # started over already: a worker was lost after it had deleted
    doomed = [child for key, child in sorted(live.children.items()) if key[1] == revision]
    if any(child.wanted or child.ready for child in doomed):
        return Hold(
            code="partial-init-in-use",
            sentence=f"Revision {revision} is incomplete, but some of its groups already run.",
            next_action="Abort.",
        )
    for child in doomed:
        try:
            context.kube.delete(
                LEADER_WORKER_SETS,
                child.name,
                child.body["metadata"]["namespace"],
                uid=child.body["metadata"]["uid"],
                resource_version=child.body["metadata"]["resourceVersion"],
            )
        except ObjectMissing:
            continue
    return Done(result={"deleted": [child.name for child in doomed]})


def publish_services(context: StepContext) -> Outcome:
    """Create the new revision's `-prv` Services, which a controller that ends in a refused step does not create."""
    memory, live = memory_of(context), look(context)
    if finding := foreign_write(context, live):
        return finding
    created, skipped = [], []
    for key, child in sorted(live.children.items()):
        if key[1] != memory.new:
            continue
        body = service_for(live.body, child.body)
        try:
            made = context.kube.create(SERVICES, body, memory.namespace)
        except AlreadyExists:
            skipped.append(body["metadata"]["name"])
            continue
        created.append(body["metadata"]["name"])
        # A Service carries no fence number: after a pause between the look and the write it is too late for one.
        if not context.still_ours():
            _take_back(context, made)
            break
    return Done(result={"created": created, "already_there": skipped})


def _take_back(context: StepContext, made: Json) -> None:
    """Delete exactly the Service that was made too late, unless the operation goes on: whoever carries this step out
    now has found it there and counts on it."""
    going_on = Operation.objects.unfinished().filter(pk=context.operation.id, phase=Operation.Phase.FORWARD)
    if not going_on.exists():
        metadata = made["metadata"]
        context.kube.delete(
            SERVICES,
            metadata["name"],
            metadata["namespace"],
            uid=metadata["uid"],
            resource_version=metadata["resourceVersion"],
        )
