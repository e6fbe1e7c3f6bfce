"""Whether a hold stands: dry runs that it must refuse, under policies that stand as shipped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from controlplane.holds.guards import guard_problems, guards_sign
from controlplane.holds.live import LiveSet
from controlplane.kube.client import Kube
from controlplane.kube.errors import Denied, KubeError
from controlplane.kube.resources import LEADER_WORKER_SETS
from controlplane.operations.contract import Done, Hold, Wait
from policy.rollout.box import Box

Json = dict[str, Any]

PROOFS = 3  # dry runs over fresh connections; each may reach another API server
GUARDS_SETTLED = 2.0  # seconds without a change; an API server takes a changed policy up once a second
PROOF_PATIENCE = 15.0  # seconds; the API server's admission cache needs up to a second or two
PROVE_AGAIN = (
    "Install the admission policies and bindings as shipped, then retry; or abort. Where all of them had been deleted, "
    "API servers up to 1.36 read the parameters again only after their own restart."
)


def prove_standing(
    kube: Kube,
    live: LiveSet,
    box: Box,
    *,
    operation: str,
    above: int,
    guards: Sequence[Json],
    kept: Mapping[str, Any],
    now: datetime,
    waited: float,
) -> Done | Wait | Hold:
    """Several dry runs that the hold of `box` must refuse with the name of the operation, while the policies stand as
    shipped (`guards`): an edited policy may refuse us and let the controller pass.

    They must also show a number over `above`, one that was written after the hold was opened or put back: an API server
    which only remembers an older parameter cannot pass for one that enforces this one. `kept` is what
    `guards_seen` gave at an earlier look; `waited` are the seconds since the first one.
    """
    if not live.children:
        return Done(result={"dry_runs": []})  # no group is anywhere: there is nothing to keep
    name, replicas = _outside(box, live)
    namespace, answers = live.body["metadata"]["namespace"], []
    for _ in range(PROOFS):
        fresh = kube.fresh()
        try:
            answers.append(_dry_run(fresh, name, namespace, replicas))
        finally:
            fresh.close()
    wrong, seen = guard_problems(kube, guards), guards_seen(kube, guards, kept=kept, now=now)
    settled = (now - datetime.fromisoformat(seen["at"])).total_seconds() >= GUARDS_SETTLED
    if settled and not wrong and all(_enforced(one, operation, above) for one in answers):
        return Done(result={"dry_runs": answers})
    if waited >= PROOF_PATIENCE:
        return Hold(
            code="hold-not-proved",
            sentence=f"A dry run of {name} with {replicas} groups was not refused by a hold that stands as shipped"
            f"{': ' + '; '.join(wrong) if wrong else ''}.",
            next_action=PROVE_AGAIN,
            facts={"dry_runs": answers, "guards": wrong},
        )
    return Wait(1, "the API server to enforce the hold", remember={"guards_seen": seen})


def guards_seen(kube: Kube, guards: Sequence[Json], *, kept: Mapping[str, Any], now: datetime) -> Json:
    """The policies' sign, and since when it has been the same: to be remembered between looks."""
    sign = guards_sign(kube, guards)
    return {"sign": sign, "at": kept["at"] if kept.get("sign") == sign else now.isoformat()}


def _outside(box: Box, live: LiveSet) -> tuple[str, int]:
    """A set, and a number of groups that its box does not allow: below a floor where there is one."""
    for key, child in sorted(live.children.items()):
        if 0 < box.floors.get(key, 0) <= child.wanted:
            return child.name, box.floors[key] - 1
    key, child = max(live.children.items(), key=lambda item: item[1].wanted)
    return child.name, max(child.wanted, box.ceilings.get(key, 0)) + 1


def _enforced(answer: str, operation: str, above: int) -> bool:
    number = answer.rpartition(", fence ")[2]
    return f"lockstep hold {operation}:" in answer and number.isdigit() and int(number) > above


def _dry_run(kube: Kube, name: str, namespace: str, replicas: int) -> str:
    try:
        kube.patch(
            LEADER_WORKER_SETS,
            name,
            namespace,
            {"spec": {"replicas": replicas}},
            resource_version=None,
            dry_run=True,
        )
    except Denied as error:
        return error.message
    except KubeError as error:
        return f"not proved: {error}"
    return "not proved: accepted"
