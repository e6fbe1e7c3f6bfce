"""Whether the path is still the one that was approved: pools, router configuration, weights, and how it is proved."""

from __future__ import annotations

from typing import Any

from controlplane.operations.contract import Hold, StepContext
from controlplane.paths.objects import read_objects
from controlplane.upgrades.path_exam import path_base, pool_facts, pools_of_set, settings_of_pools
from controlplane.upgrades.steps.memory import memory_of, plan_of

Json = dict[str, Any]


def path_moved(context: StepContext, *, written: bool = True) -> Hold | None:
    """A finding where the path is not the approved one, read live. An operation without a word about paths in its base
    was approved by an older version; one that was approved without pools must still have none.

    `written`: the new roles are in the cluster, so that going back is more than not to begin. A pool that was not to
    be probed may have got settings meanwhile: more proof than was approved hurts nobody.
    """
    approved = (plan_of(context).base or {}).get("paths")
    if approved is None:
        return None
    memory = memory_of(context)
    objects = read_objects(context.kube, memory.namespace)
    if objects.unread and approved:
        return _hold(written, f"This account may no longer list {', '.join(objects.unread)}.")
    pools = pools_of_set(objects, memory.name)
    settings = settings_of_pools(context.cluster)
    now = [path_base(pool_facts(pool, settings.get(pool.uid))) for pool in pools]
    known = {each["uid"]: each for each in approved}
    for each in now:
        if each["uid"] not in known:
            return _hold(
                written, f"The pool {each['name']} selects the set, and was not there when it was approved."
            )
    found = {each["uid"]: each for each in now}
    for uid, wanted in known.items():
        if uid not in found:
            return _hold(written, f"The pool {wanted['name']} no longer selects the set.")
        for key, what in _PARTS.items():
            if wanted.get(key) != found[uid].get(key) and not (key == "probes" and wanted.get(key) is None):
                return _hold(written, f"The pool {wanted['name']}: {what} is not the approved one.")
    return None


_PARTS = {
    "router_config": "its router's configuration",
    "screening": "how its router keeps revisions apart",
    "routes": "the weights of its routes",
    "probes": "the way in which it is probed",
}


def _hold(written: bool, sentence: str) -> Hold:
    if not written:
        return Hold(
            code="base-changed",
            sentence=sentence,
            next_action="Put it back, then retry; or abort (nothing was written yet) and check the plan again.",
        )
    return Hold(
        code="path-changed",
        sentence=sentence,
        next_action="Put it back, then retry; or abort and plan again.",
    )
