"""One slice of a rollout, one step at a time: begin, wait, move to the next row of the planner.

Rows come from policy's port of the planner. Here is what the controller makes of them: one patch for each
LeaderWorkerSet, growth first, old generations drained newest first, and a generation of which one role reaches 0 goes
as a whole. The first refused patch ends the step.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deploy.demo.emulator.controllers.children import (
    Child,
    Generation,
    create_child,
    initial_total,
    newest_first,
    role_names,
    scale_child,
    total,
)
from deploy.demo.emulator.controllers.hands import Hands
from deploy.demo.emulator.controllers.names import GROUP_SETS, INITIAL_REPLICAS, annotations_of, where
from deploy.demo.emulator.problems import ApiProblem
from policy.rollout.pace import DEFAULT_PACE, Pace, resolve_pace
from policy.rollout.planner import next_row

Doc = dict[str, Any]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Slice:
    """One slice of a set at the moment of a reconcile.

    ``targets`` groups per role; a role scaled from outside without a usable scaler has none, and then keeps what it
    has · ``external`` roles whose number never shrinks during a rollout.
    """

    owner: Doc
    key: str
    revision: str
    roles: Sequence[Doc]
    targets: Mapping[str, int]
    external: frozenset[str]
    old: dict[str, Generation]
    new: Generation
    sliced: bool

    @property
    def rolling(self) -> bool:
        """Whether a role of the spec still has old groups."""
        return any(total(self.old, name) for name in role_names(self.roles))


async def roll(hands: Hands, state: Slice, requeue_s: float) -> float | None:
    """One step of a rollout; returns when to look again. Raises ApiProblem where a write is refused."""
    if not state.new:
        await _begin(hands, state)
        return requeue_s
    if not _stable(state):
        return requeue_s
    await _step(hands, state)
    return None


async def settle(hands: Hands, state: Slice) -> None:
    """Without old groups: what is missing is created at full size, what has another size gets its own at once."""
    for role in state.roles:
        name = role["name"]
        child = state.new.get(name)
        target = state.targets.get(name, child.replicas if child else 0)
        if child is None:
            await _create(hands, state, role, target)
        elif child.replicas != target:
            await scale_child(hands, child, target)


async def _begin(hands: Hands, state: Slice) -> None:
    await hands.event(state.owner, "RollingUpdateStarted", f"Rollout to revision {state.revision} begins")
    for generation in state.old.values():
        for child in generation.values():
            await _remember_initial(hands, child)
    for role in state.roles:
        await _create(hands, state, role, 0)


async def _create(hands: Hands, state: Slice, role: Doc, replicas: int) -> None:
    await create_child(
        hands,
        state.owner,
        role,
        slice_key=state.key,
        revision=state.revision,
        replicas=replicas,
        sliced=state.sliced,
    )


async def _remember_initial(hands: Hands, child: Child) -> None:
    """What an old child has now is what its drain is measured by; a refusal here stops nothing."""
    if annotations_of(child.doc).get(INITIAL_REPLICAS) == str(child.replicas):
        return
    namespace, name = where(child.doc)
    body = {"metadata": {"annotations": {INITIAL_REPLICAS: str(child.replicas)}}}
    try:
        await hands.patch(GROUP_SETS, namespace, name, body)
    except ApiProblem as problem:
        log.info("%s keeps its initial count: %s", name, problem)


def _stable(state: Slice) -> bool:
    """Whether every role has its new child and all of its groups are ready."""
    children = [state.new.get(name) for name in role_names(state.roles)]
    return all(child is not None and child.ready == child.replicas for child in children)


async def _step(hands: Hands, state: Slice) -> None:
    specified = role_names(state.roles)
    removed = sorted({role for each in state.old.values() for role in each} - set(specified))
    names = [*specified, *removed]
    old = [total(state.old, name) for name in names]
    new = [state.new[name].replicas if name in state.new and name in specified else 0 for name in names]
    targets = [
        _target(state, name, now) if name in specified else 0 for name, now in zip(names, new, strict=True)
    ]
    paces = [_pace(state.roles, name, target) for name, target in zip(names, targets, strict=True)]
    row = next_row(
        initial=[initial_total(state.old, name) for name in names],
        old=old,
        new=new,
        target=targets,
        surge=[pace.surge for pace in paces],
        unavailable=[pace.unavailable for pace in paces],
    )
    if row is None:
        message = f"Rollout to revision {state.revision} is complete"
        await hands.event(state.owner, "RollingUpdateCompleted", message)
        return
    for name, now, wanted in zip(specified, new, row.new, strict=False):
        if wanted > now:
            await scale_child(hands, state.new[name], wanted)
            await _tell(hands, state.owner, "ScalingUp", state.new[name], wanted)
    budget = {name: now - left for name, now, left in zip(names, old, row.old, strict=True)}
    for generation in newest_first(state.old):
        if all(each <= 0 for each in budget.values()):
            break
        await _drain(hands, state.owner, generation, names, budget)


def _target(state: Slice, name: str, now: int) -> int:
    wanted = state.targets.get(name, now)
    return max(wanted, now) if name in state.external else wanted


def _pace(roles: Sequence[Doc], name: str, target: int) -> Pace:
    for role in roles:
        if role["name"] == name:
            strategy = role["spec"].get("rolloutStrategy") or {}
            return resolve_pace(strategy.get("rollingUpdateConfiguration"), target)
    return DEFAULT_PACE


async def _drain(
    hands: Hands, owner: Doc, generation: Generation, names: Sequence[str], budget: dict[str, int]
) -> None:
    """Take from one old generation what the budget still asks for, in the order of the roles.

    A budget below 0 (the planner would give a role a group back) is never carried out, but such a role does not count
    as emptied either.
    """
    present = [name for name in names if name in generation]
    taken = {name: min(budget[name], generation[name].replicas) for name in present}
    emptied = {name for name in present if generation[name].replicas == taken[name]}
    for name in present:
        child = generation[name]
        left = 0 if emptied else child.replicas - taken[name]
        if child.replicas <= left:
            continue
        await scale_child(hands, child, left)
        await _tell(hands, owner, "ScalingDown", child, left)
        if not emptied or name in emptied:
            budget[name] -= taken[name]


async def _tell(hands: Hands, owner: Doc, reason: str, child: Child, replicas: int) -> None:
    message = f"{child.role}: {child.name} goes from {child.replicas} to {replicas} groups"
    await hands.event(owner, reason, message)
