"""Hazards of moving from the live revision to the planned one: roles, rows, pace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from policy.rollout.facts import PlanFacts, RoleFacts
from policy.rollout.hazard import Hazard
from policy.rollout.holds import minimum_ready
from policy.rollout.pace import groups_of, is_percent, with_crd_defaults
from policy.rollout.wording import count, listed

_OTHER_WAYS = "plan it with surge of at least 1, as blue/green (surge 100%), or set by set in cells"


def rollout_hazards(facts: PlanFacts) -> Iterator[Hazard]:
    """All hazards of this kind. Rows and roles are looked at only where something rolls out."""
    yield from _live_state(facts)
    yield from _pace(facts)
    yield from _targets(facts)
    yield from _late(facts)
    if not facts.scope.rolls:
        yield Hazard(
            "nothing-rolls-out",
            "info",
            f"The templates and their order stay the same. {facts.scope.sentence}",
            "Go on if that is meant; otherwise change an image, argument or other part of a template.",
            {"replicas": list(facts.scope.replicas_changed)},
        )
        return
    yield from _role_names(facts)
    yield from _old_groups(facts)
    yield from _without_surge(facts)
    yield from _rows(facts)
    yield from _with_the_template(facts)


def _live_state(facts: PlanFacts) -> Iterator[Hazard]:
    if not facts.live_revisions:
        yield Hazard(
            "no-live-revision",
            "block",
            "No revision of this set asks for any group, so there is nothing to upgrade from.",
            "Scale the set up first, then plan the upgrade.",
        )
    if len(facts.live_revisions) > 1:
        yield Hazard(
            "several-live-revisions",
            "block",
            f"{len(facts.live_revisions)} revisions ask for groups: {listed(facts.live_revisions)}. The "
            "controller would drain the newest first, whichever it is.",
            "Finish or abort what runs, or scale leaked revisions to 0, then plan again.",
            {"revisions": list(facts.live_revisions)},
        )
    if facts.rollout_in_flight:
        yield Hazard(
            "rollout-in-flight",
            "block",
            "The set is in the middle of a rollout; a third template would re-base it.",
            "Let it end or abort it, then plan again.",
        )


def _targets(facts: PlanFacts) -> Iterator[Hazard]:
    targets = [role.name for role in facts.roles if role.target_groups == 0]
    if targets:
        yield Hazard(
            "target-at-zero",
            "block",
            f"The plan takes {listed(targets)} to 0 groups. That is an outage, not a pause.",
            "Plan at least 1 group for every role.",
            {"roles": targets},
        )


def _role_names(facts: PlanFacts) -> Iterator[Hazard]:
    added = [role.name for role in facts.roles if role.live_groups is None]
    removed = [role.name for role in facts.roles if role.target_groups is None]
    kept = [role for role in facts.roles if role.name not in {*added, *removed}]
    if not kept and removed:
        yield _all_replaced(added, removed)
        return
    if added:
        yield Hazard(
            "role-added",
            "warn",
            f"New roles: {listed(added)}. The old revision lacks them, so its -prv Services vanish with "
            "the first ready batch while its pods still serve.",
            "Check that nothing finds the old pods through those Services.",
            {"roles": added},
        )
    yield from _removed(removed, facts.reconcile_errors)
    if facts.scope.reordered:
        yield Hazard(
            "roles-reordered",
            "warn",
            "The roles stand in another order. Order is part of the revision: this alone restarts all "
            "groups.",
            "Write the roles in their present order if no restart is meant.",
            {"order": [role.name for role in facts.roles if role.target_groups is not None]},
        )


def _all_replaced(added: list[str], removed: list[str]) -> Hazard:
    return Hazard(
        "all-roles-replaced",
        "block",
        "No role name is kept: the new revision would start at full size at once, and the old groups "
        "would never be drained.",
        "Keep at least one role name, or bring the new roles up as a set of their own.",
        {"added": added, "removed": removed},
    )


def _removed(removed: list[str], errors: Sequence[str]) -> Iterator[Hazard]:
    if removed:
        yield Hazard(
            "role-removed",
            "warn",
            f"Removed roles: {listed(removed)}. They are drained with the others, without a pace of their "
            "own.",
            "Check that the other roles can serve without them from the first row on.",
            {"roles": removed},
        )
    if removed and errors:
        yield Hazard(
            "role-removed-with-errors",
            "block",
            f"Removed roles: {listed(removed)}, while the controller reports errors. If it fails after "
            "the last kept role is drained, the groups of a removed role stay for good.",
            "Mend the errors first, or remove roles in a later change.",
            {"roles": removed, "errors": list(errors)},
        )


def _old_groups(facts: PlanFacts) -> Iterator[Hazard]:
    at_zero = [role.name for role in facts.roles if role.live_groups == 0]
    if at_zero:
        yield Hazard(
            "role-at-zero",
            "block",
            f"Roles with 0 groups in the live revision: {listed(at_zero)}. The first drain would take "
            "every role of that revision to 0 at once.",
            "Scale them to at least 1 and wait until they are ready; removing them does not help.",
            {"roles": at_zero},
        )
    yield from _unready(facts)


def _unready(facts: PlanFacts) -> Iterator[Hazard]:
    unready = [role for role in facts.roles if (role.live_groups or 0) > role.ready_groups]
    if unready:
        minimum = _minimum(facts)
        short = [role.name for role in unready if role.ready_groups < minimum[role.name]]
        counts = [f"{role.name} {role.ready_groups} of {role.live_groups}" for role in unready]
        below = f" Already under the minimum of the plan: {listed(short)}." if short else ""
        yield Hazard(
            "old-groups-unready",
            "block" if short else "warn",
            f"Not every old group is ready ({', '.join(counts)}). The controller counts them all as "
            f"capacity, and an abort has to wait for them.{below}",
            "Repair the old groups first." if short else "Repair them first, or accept less capacity.",
            {"ready": {role.name: [role.ready_groups, role.live_groups] for role in unready}},
        )


def _minimum(facts: PlanFacts) -> dict[str, int]:
    if facts.view is not None:
        least = facts.view.minimum
    else:
        least = minimum_ready(
            initial=[role.live_groups or 0 for role in facts.roles],
            target=[role.target_groups or 0 for role in facts.roles],
            unavailable=[role.pace.unavailable for role in facts.roles],
        )
    return {role.name: groups for role, groups in zip(facts.roles, least, strict=True)}


def _pace(facts: PlanFacts) -> Iterator[Hazard]:
    surprising = []
    for role in facts.roles:
        written = role.pace_written
        if role.target_groups is None or written is None:
            continue
        missing = [name for name in ("maxSurge", "maxUnavailable") if written.get(name) is None]
        if missing:
            stored = with_crd_defaults(written)
            surprising.append((role.name, {name: stored[name] for name in missing}))
    if surprising:
        said = [
            f"{name}: {' and '.join(f'{field} {value}' for field, value in filled.items())}"
            for name, filled in surprising
        ]
        yield Hazard(
            "pace-defaults",
            "info",
            "The pace is written in part. The API server fills in the rest, not with the values that "
            f"hold without any pace ({'; '.join(said)}).",
            "Write both maxSurge and maxUnavailable.",
            {"filled_in": dict(surprising)},
        )
    trapped = [role.name for role in facts.roles if _percent_trap(role)]
    if trapped:
        yield Hazard(
            "surge-zero-percent",
            "block",
            f"Roles with surge 0 and unavailable in percent: {listed(trapped)}. On the way down the "
            "percent of few groups becomes 0, and the webhook of LeaderWorkerSet then refuses every step.",
            "Write maxUnavailable as a number of groups, or give a surge of at least 1.",
            {"roles": trapped},
        )


def _percent_trap(role: RoleFacts) -> bool:
    if role.target_groups is None or role.pace_written is None:
        return False
    stored = with_crd_defaults(role.pace_written)
    no_surge = groups_of(stored["maxSurge"], role.target_groups, up=True) == 0
    return no_surge and is_percent(stored["maxUnavailable"])


def _without_surge(facts: PlanFacts) -> Iterator[Hazard]:
    moving = [role for role in facts.roles if role.live_groups and role.target_groups]
    without = [role.name for role in moving if role.pace.surge == 0]
    counts = {role.name: (role.live_groups, role.target_groups) for role in moving}
    if without and len({number for pair in counts.values() for number in pair}) > 1:
        yield Hazard(
            "surge-zero-unequal",
            "warn",
            f"Roles with surge 0: {listed(without)}, and the counts differ. Some rows then count groups "
            "as capacity that have not started yet.",
            f"Look at the ready groups of each row, or {_OTHER_WAYS}.",
            {"roles": without, "groups": {name: list(pair) for name, pair in counts.items()}},
        )
    if facts.view is None or not without:
        return
    over = [
        (row.row, role.name)
        for row in facts.view.rows
        for role, old, new in zip(facts.roles, row.old, row.new, strict=True)
        if role.name in without and new and old + new > (role.target_groups or 0)
    ]
    if over:
        row, name = over[0]
        yield Hazard(
            "spare-group-needed",
            "warn",
            f"Row {row} needs one more group of {name} than its target although its surge is 0. Without "
            "room for it the rollout stops there.",
            "Keep room for one more group of each role, or plan with surge.",
            {"rows": [list(place) for place in over]},
        )


def _rows(facts: PlanFacts) -> Iterator[Hazard]:
    if facts.view is None:
        return
    short = [(row, position) for row in facts.view.rows for position in row.short]
    if short:
        row, position = short[0]
        ready, least = row.ready[position], facts.view.minimum[position]
        yield Hazard(
            "row-under-minimum",
            "block",
            f"At row {row.row} {facts.roles[position].name} has {count(ready, 'ready group')}, and the "
            f"plan's minimum is {least}.",
            f"Lower the minimum if that is meant, or {_OTHER_WAYS}.",
            {"rows": [[each.row, facts.roles[role].name, each.ready[role]] for each, role in short]},
        )
    if facts.view.holds.unmet:
        yield Hazard(
            "hold-without-row",
            "block",
            f"No row can be held for the rule {listed(facts.view.holds.unmet)}: none has enough ready "
            "groups in every role before the end.",
            f"Drop the rule, or {_OTHER_WAYS}.",
            {"rules": list(facts.view.holds.unmet)},
        )


def _with_the_template(facts: PlanFacts) -> Iterator[Hazard]:
    changed = set(facts.scope.replicas_changed)
    resized = [role for role in facts.roles if role.name in changed and role.target_groups is not None]
    if resized:
        steps = [f"{role.name} {role.live_groups} to {role.target_groups}" for role in resized]
        grows = any((role.target_groups or 0) > (role.live_groups or 0) for role in resized)
        floors = " For a role that grows the controller keeps no least capacity." if grows else ""
        yield Hazard(
            "replicas-with-template",
            "info",
            f"The number of groups changes in the same rollout ({', '.join(steps)}).{floors}",
            "Go on if that is meant; two changes one after the other are easier to judge.",
            {"groups": {role.name: [role.live_groups, role.target_groups] for role in resized}},
        )


def _late(facts: PlanFacts) -> Iterator[Hazard]:
    if not facts.scope.late:
        return
    when = "It reaches pods together with the new revision, and would reach none without one."
    if not facts.scope.rolls:
        when = "It reaches no pod now: objects that exist keep what they were created with."
    yield Hazard(
        "late-settings",
        "info",
        f"Outside the revision: {listed(facts.scope.late)}. {when}",
        "Go on if that is meant." if facts.scope.rolls else "Plan it together with a change of a template.",
        {"paths": list(facts.scope.late)},
    )
