"""After the fast profile: the recorded pace goes back into the roles. Outside the revision, so nothing rolls."""

from __future__ import annotations

from controlplane.fleet.target import templates_digest
from controlplane.holds.live import roles_digest
from controlplane.kube.resources import DISAGGREGATED_SETS
from controlplane.operations.contract import Done, Hold, Outcome, StepContext
from controlplane.upgrades.steps.memory import foreign_write, look, plan_of


def settle_roles(context: StepContext) -> Outcome:
    """Write the final roles where they differ from the rolled ones in pace only."""
    live, final = look(context), (plan_of(context).content or {})["roles_final"]
    if roles_digest(live.roles) == roles_digest(final):
        return Done(remember={"expected": roles_digest(final)})
    if finding := foreign_write(context, live):
        return finding
    if templates_digest(live.roles) != templates_digest(final):
        return Hold(
            "settle-would-roll", "The final roles have other templates than the rolled ones.", "Abort."
        )
    stored = context.kube.replace(
        DISAGGREGATED_SETS, {**live.body, "spec": {**live.body["spec"], "roles": final}}
    )
    return Done(remember={"expected": roles_digest(stored["spec"]["roles"])})
