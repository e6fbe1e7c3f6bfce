"""Which version the engines of both revisions are: what a metric means, and whether a good value proves anything,
depends on it. The engines are asked where workers reach them; else the tag of their own image is taken, and said so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from controlplane.operations.contract import StepContext
from controlplane.paths.engines import tagged_version_of
from controlplane.paths.models import Pool
from controlplane.paths.pool_settings import read_settings
from controlplane.paths.probing import direct_addresses
from controlplane.paths.versions import read_versions
from controlplane.paths.view import PoolView

Json = dict[str, Any]
ASKED, TAGGED = "GET /version", "image tag"


def versions_of(
    context: StepContext, pools: Sequence[PoolView], roles: Mapping[str, Sequence[Mapping[str, Any]]]
) -> tuple[dict[str, dict[str, str]], Json]:
    """Revision label → role → version, and what to remember. `roles` are `spec.roles` of each revision.

    Asked once for each attempt of a step: templates of a revision do not change."""
    kept: Json = context.operation.memory.get("engine_versions") or {}
    tried = [context.step_id, context.attempt] if context.attempt > 1 else []
    known: Json = kept.get("known") or {}
    if kept.get("tried") != tried or any(label not in known for label in roles):
        asked = _ask(context, pools, set(roles))
        known = {
            label: {
                str(role["name"]): list(
                    asked.get((label, str(role["name"]))) or (tagged_version_of(role), TAGGED)
                )
                for role in each
            }
            for label, each in roles.items()
        }
    found = {
        label: {role: version for role, (version, _) in known[label].items() if version} for label in roles
    }
    return found, {"engine_versions": {"tried": tried, "known": known}}


def _ask(
    context: StepContext, pools: Sequence[PoolView], labels: set[str]
) -> dict[tuple[str, str], tuple[str, str]]:
    """One ready pod for each revision and role, through the pools whose engines may be asked directly."""
    rows = {row.uid: row for row in Pool.objects.filter(cluster=context.cluster, gone_at=None)}
    addresses: dict[str, str] = {}
    of: dict[str, tuple[str, str]] = {}
    for pool in pools:
        if pool.uid not in rows:
            continue
        chosen = {(pod.revision, pod.role): pod for pod in pool.pods if pod.ready and pod.revision in labels}
        settings = read_settings(rows[pool.uid].settings)
        found = direct_addresses(list(chosen.values()), settings, pool) if settings.can_probe else {}
        addresses |= found
        of |= {pod.name: key for key, pod in chosen.items() if pod.name in found}
    return {of[name]: (version, ASKED) for name, version in read_versions(addresses).items()}
