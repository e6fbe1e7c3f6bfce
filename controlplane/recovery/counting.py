"""What a restore cost the clients, as far as numbers tell: requests that the routers refused while it ran."""

from __future__ import annotations

from typing import Any

from controlplane.errors import LockstepError
from controlplane.fleet.connections import connect_metrics
from controlplane.metrics.reading import measure_all
from controlplane.operations.contract import Done, Outcome, StepContext
from controlplane.recovery.models import Combination

Json = dict[str, Any]
CALL_S = 2.0
POOLS = 3  # asked for at most; a step has seconds
REFUSED = "router_error_codes"
NOT_BY_PAIR = (
    "Counters name endpoints and not pairs, so pairs cannot be counted from them; the router kept each request inside"
    " one revision, or traffic was drained."
)


def count_requests(context: StepContext) -> Outcome:
    """A look at the metric source: refused requests per router and code since the operation began. What cannot be had
    is said; nothing is held for it. What a gateway refuses while a router is away is not in a router's counters."""
    memory = context.operation.memory
    found = Combination.objects.get(pk=memory["combination"])
    routers = [pool["router"]["deployment"] for pool in found.document["pools"]][:POOLS]
    counted = {
        "since": context.operation.started_at.isoformat(),
        "refused": _refused(context, routers),
        "mixed_pairs": {"state": "not-exposed", "reason": NOT_BY_PAIR if routers else "No pool is known."},
    }
    return Done(result=counted, remember={"counted": counted})


def _refused(context: StepContext, routers: list[str]) -> Json:
    window = max(60, round((context.now - context.operation.started_at).total_seconds()))
    try:
        client, source = connect_metrics(context.cluster, timeout_s=CALL_S)
        with client:
            return {
                name: [
                    {
                        "code": (each.labels or {}).get("error_code", ""),
                        "state": each.state.value,
                        "count": each.value,
                        "reason": each.reason,
                    }
                    for each in measure_all(
                        client,
                        source,
                        [REFUSED],
                        namespace=context.operation.namespace,
                        window_s=window,
                        router=name,
                    )
                ]
                for name in routers
                if name
            }
    except LockstepError as error:
        return {
            name: [{"code": "", "state": "no-data", "count": None, "reason": error.sentence}]
            for name in routers
        }
