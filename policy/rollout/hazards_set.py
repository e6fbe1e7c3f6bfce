"""Hazards of the set and its surroundings: names, versions, slices, scalers, writers, room, path."""

from __future__ import annotations

import re
from collections.abc import Iterator

from policy.rollout.facts import PlanFacts, RoleFacts
from policy.rollout.hazard import Hazard
from policy.rollout.hazards_path import path_hazards
from policy.rollout.planner import MATCHING_RELEASES, planner_matches
from policy.rollout.wording import listed

_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_REVISION_LENGTH = 8
# A StatefulSet's pods carry its name and a hash of up to 10 digits in one label of at most 63 characters.
_STATEFULSET_LIMIT = 63 - 11


def set_hazards(facts: PlanFacts) -> Iterator[Hazard]:
    """All hazards of this kind."""
    yield from _names(facts)
    yield from _version(facts)
    yield from _slices(facts)
    yield from _scalers(facts)
    yield from _owners(facts)
    yield from _room(facts)
    yield from _traffic(facts)


def _names(facts: PlanFacts) -> Iterator[Hazard]:
    if not _DNS_1035.fullmatch(facts.set_name):
        yield Hazard(
            "name-not-dns-1035",
            "block",
            f"The name {facts.set_name} does not start with a letter or has characters other than "
            "letters, digits and hyphens. The set is admitted, but every LeaderWorkerSet it creates is "
            "refused.",
            "Create the set again under a name such as those of Services.",
            {"name": facts.set_name},
        )
    long = {}
    for role in facts.roles:
        length, limit = _object_name_length(facts, role), _name_limit(role)
        if role.target_groups is not None and length > limit:
            long[role.name] = [length, limit]
    if long:
        yield Hazard(
            "name-too-long",
            "block",
            f"LeaderWorkerSet names too long for pods to be created: those of {listed(list(long))}.",
            "Use a shorter name for the set or the role.",
            {"length_and_limit": long},
        )


def _object_name_length(facts: PlanFacts, role: RoleFacts) -> int:
    """Length of <set>-<revision>-<role>; newer releases put the slice in between."""
    length = len(facts.set_name) + 1 + _REVISION_LENGTH + 1 + len(role.name)
    sliced = not re.match(r"v?0\.9\.", facts.lws_version or "")
    return length + 1 + len(str(facts.slices_after - 1)) if sliced else length


def _name_limit(role: RoleFacts) -> int:
    if role.size == 1:
        return _STATEFULSET_LIMIT
    # The workers of a group have a StatefulSet of their own, named after the group.
    last = max(role.target_groups or 1, 1) - 1
    return _STATEFULSET_LIMIT - 1 - len(str(last))


def _version(facts: PlanFacts) -> Iterator[Hazard]:
    if facts.scope.rolls and not planner_matches(facts.lws_version):
        seen = facts.lws_version or "of an unknown version"
        yield Hazard(
            "lws-version-unknown",
            "warn",
            f"The LeaderWorkerSet controller is {seen}. The rows are exact for "
            f"{listed(MATCHING_RELEASES)} and an estimate here; the upgrade goes through them one by one.",
            "Acknowledge that the preview is an estimate.",
            {"version": facts.lws_version, "matching": list(MATCHING_RELEASES)},
        )


def _slices(facts: PlanFacts) -> Iterator[Hazard]:
    numbers = {"slices": [facts.slices_before, facts.slices_after]}
    if facts.slices_after > facts.slices_before and facts.scope.rolls:
        yield Hazard(
            "slices-raised",
            "block",
            "The number of slices grows together with the template: a new slice starts the planned "
            "revision at full size at once, without a row or a hold.",
            "Upgrade first, then add slices.",
            numbers,
        )
    if facts.slices_after < facts.slices_before:
        yield Hazard(
            "slices-lowered",
            "warn",
            "The number of slices shrinks: the last slices are deleted at once, without a drain.",
            "Take traffic away from those slices first.",
            numbers,
        )


def _scalers(facts: PlanFacts) -> Iterator[Hazard]:
    stuck = {each.name: each.problem for each in facts.scalers if each.problem}
    seen = {each.role for each in facts.scalers}
    stuck |= {
        f"role {role.name}": "it is sized from outside (scaling mode External), by something that is not seen"
        for role in facts.roles
        if role.external and role.name not in seen
    }
    if stuck:
        yield Hazard(
            "scaler-on-role",
            "block",
            "A held set cannot scale, and what scales this one cannot be paused: "
            f"{listed([f'{name} ({why})' for name, why in stuck.items()])}.",
            "Remove the scaler for the time of the upgrade, or make the role Static.",
            {"scalers": stuck},
        )
    paused = {each.name: each.way for each in facts.scalers if not each.problem}
    if paused:
        yield Hazard(
            "scaler-is-paused",
            "warn",
            f"Will be paused from the start to the end of the upgrade and given back then: {listed(list(paused))}. "
            "Replicas stay as they are, at every hold as well, whatever the load.",
            "Acknowledge that the set does not scale meanwhile, or upgrade when the load is low.",
            {"scalers": paused},
        )
    aimed = {each.name: each.target for each in facts.scalers if each.of_revision}
    if aimed and facts.scope.rolls:
        yield Hazard(
            "scaler-aims-at-revision",
            "warn",
            f"Scalers aim at sets of the live revision by name: {listed(list(aimed))}. After the upgrade those are "
            "gone, and the scalers have nothing to scale.",
            "Point them at the new sets afterwards; where the controller has role scalers, point them at those.",
            {"targets": aimed},
        )


def _owners(facts: PlanFacts) -> Iterator[Hazard]:
    if facts.writers:
        yield Hazard(
            "another-writer",
            "block",
            "Others write the roles of this set and would undo the upgrade or an abort: "
            f"{listed(facts.writers)}.",
            "Pause them, or export the plan and let its owner write it.",
            {"writers": list(facts.writers)},
        )


def _room(facts: PlanFacts) -> Iterator[Hazard]:
    if not facts.scope.rolls:
        return
    fit = facts.fit
    if fit is not None and fit.verdict == "does-not-fit":
        yield Hazard(
            "does-not-fit",
            "block",
            f"The fullest row does not fit: {fit.first_group} cannot be placed. {fit.sentence}".strip(),
            "Free or add nodes, lower the surge, or plan the change set by set.",
            {"first_group": fit.first_group},
        )
    elif fit is None or fit.verdict == "unknown":
        why = fit.sentence if fit is not None and fit.sentence else "It was not computed."
        yield Hazard(
            "fit-unknown",
            "warn",
            f"Whether the fullest row fits is not known. {why}",
            "Check by hand that the peak can be placed; a row that cannot start stops the rollout.",
        )


def _traffic(facts: PlanFacts) -> Iterator[Hazard]:
    if not facts.scope.rolls:
        return
    if facts.prv_users:
        yield Hazard(
            "prv-services-used",
            "warn",
            f"-prv Services of this set are referred to by {listed(facts.prv_users)}. They belong to one "
            "revision: the new one gets others, and the old ones go when it is ready.",
            "Select pods by the labels of set and role instead.",
            {"users": list(facts.prv_users)},
        )
    yield from path_hazards(facts.path)
