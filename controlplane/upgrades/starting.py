"""What an operation remembers from its plan: everything its steps need, so that they never re-derive it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from controlplane.holds.live import roles_digest
from controlplane.upgrades.models import Plan
from policy.approval.quorum import Slot

Json = dict[str, Any]


def memory_for(
    plan: Plan, *, installation: str, hold_slots: Sequence[Slot], excluded: Mapping[str, str]
) -> Json:
    """The first memory of an upgrade; `steps.memory.Memory` is its typed view. `scalers` comes with the step that
    pauses them (holds/scalers)."""
    content, base, rows, bounds = plan.content or {}, plan.base or {}, plan.rows or {}, plan.bounds or {}
    return {
        "plan": plan.pk,
        "installation": installation,
        "namespace": plan.workload.namespace,
        "name": plan.workload.name,
        "uid": plan.workload.uid,
        "roles": rows["roles"],
        "rows": [[row["old"], row["new"], row["kind"]] for row in rows["rows"]],
        "surge": rows["surge"],
        "unavailable": rows["unavailable"],
        "minimum": bounds["minimum_ready"],
        "old": base["revision"],
        "new": "",
        "slices": base["slices"],
        "slice_rows": dict.fromkeys(base["slices"], 0),
        "expected": roles_digest(content["roles_before"]),
        "images_before": base["images"],
        "options": plan.options,
        "stable_for": plan.options["stable_for"],
        "stuck_after": plan.options["stuck_after"],
        "init_patience": 30,
        "settle": content["roles_final"] != content["roles_after"],
        "votes_needed": True,
        "hold_slots": [asdict(slot) for slot in hold_slots],
        "excluded": dict(excluded),
        "gate_rules": bounds["gates"],
        # What was acknowledged: without a source the gates that need one are not required.
        "unmeasured": any(hazard["id"] == "no-metric-source" for hazard in plan.hazards),
    }
