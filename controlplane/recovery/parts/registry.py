"""Names of the parts' steps to what carries them out, and whether it writes to the cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from controlplane.operations.contract import Outcome
from controlplane.recovery.parts import (
    contents,
    private,
    reaching,
    router,
    scaling,
    traffic,
    verifying,
    workload,
)

Part = Callable[..., Outcome]

PARTS: Mapping[str, tuple[Part, bool]] = {
    "recovery.put_config_maps": (contents.put_config_maps, True),
    "recovery.drain_traffic": (traffic.drain_traffic, True),
    "recovery.open_hold": (workload.open_hold, True),
    "recovery.prove_hold": (workload.prove_hold, True),  # its own number must show
    "recovery.write_roles": (workload.write_roles, True),
    "recovery.publish_services": (private.publish_services, True),
    "recovery.reach_whole": (reaching.reach_whole, False),
    "recovery.drain_old": (workload.drain_old, True),
    # Each fencing is a touch: the controller looks again.
    "recovery.reach_alone": (reaching.reach_alone, True),
    "recovery.scale_leaked": (reaching.scale_leaked, True),
    "recovery.settle_pace": (workload.settle_pace, True),
    "recovery.release": (workload.release, True),
    "recovery.put_router": (router.put_router, True),
    "recovery.reach_router": (router.reach_router, False),
    "recovery.put_objectives": (contents.put_objectives, True),
    "recovery.return_traffic": (traffic.return_traffic, True),
    "recovery.put_weights": (traffic.put_weights, True),
    "recovery.put_scalers": (scaling.put_scalers, True),
    "recovery.verify": (verifying.verify, False),
}
