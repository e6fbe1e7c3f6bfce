"""The operational artifact of a set: its present truth as one document with version and digest (DESIGN 1)."""

from __future__ import annotations

from typing import Any

from controlplane.errors import NotFound
from controlplane.fleet.models import Workload
from controlplane.operations.pauses import automation_paused
from controlplane.paths.golden import summary_of
from controlplane.paths.models import GoldenOutputs, Pool
from controlplane.recovery.models import Combination, Restore
from controlplane.recovery.secrecy import shown
from policy.canonical import digest

Json = dict[str, Any]
VERSION = 1


def operational_artifact(workload: Workload) -> Json:
    """Intended topology, what moves together, traffic policy, and what there is to go back to.

    Built from the newest combination that is not revoked. Raises NotFound `nothing-captured`.
    """
    rows = Combination.objects.of_set(
        cluster=workload.cluster, namespace=workload.namespace, name=workload.name
    ).exclude(state=Combination.State.REVOKED)
    newest = rows.first()
    if newest is None:
        raise NotFound(
            "nothing-captured",
            f"No combination of {workload.namespace}/{workload.name} was captured yet.",
            next_action="Capture what stands.",
        )
    document: Json = {
        "kind": "operational-artifact",
        "version": VERSION,
        "set": {
            "cluster": workload.cluster.name,
            "namespace": workload.namespace,
            "name": workload.name,
            "uid": workload.uid,
        },
        **_present(shown(newest.document)),
        "recovery": _recovery(newest, rows.filter(state=Combination.State.VERIFIED).first(), workload),
    }
    return {**document, "digest": digest(document)}


def pool_artifact(pool: Pool) -> Json:
    """The artifacts of the sets behind a pool, as one document. Raises NotFound `nothing-captured`."""
    sets = Workload.objects.select_related("cluster").filter(
        cluster=pool.cluster,
        namespace=pool.namespace,
        name__in=pool.path.get("sets") or [],
        gone_at=None,
    )
    document: Json = {
        "kind": "operational-artifact-of-pool",
        "version": VERSION,
        "pool": {
            "cluster": pool.cluster.name,
            "namespace": pool.namespace,
            "name": pool.name,
            "uid": pool.uid,
        },
        "sets": [operational_artifact(each) for each in sets.order_by("name")],
    }
    return {**document, "digest": digest(document)}


def _present(document: Json) -> Json:
    workload = document["workload"]
    return {
        "configuration": {
            "revision": workload["revision"],
            "templates": workload["templates"],
            "slices": workload["slices"],
            "placement": workload["placement"],
            "roles": workload["roles"],
            "images": workload["images"],
            "config_maps": document["config_maps"],
            "secrets": document["secrets"],
        },
        "component_compatibility": {
            "moves_together": [role["name"] for role in workload["roles"]],
            "transfer": document["transfer"],
        },
        "traffic_policy": {
            "routers": [
                {
                    "pool": pool["name"],
                    "image": pool["router"]["image"],
                    "image_ids": pool["router"]["image_ids"],
                    "configuration": pool["router"]["config"]["digest"],
                }
                for pool in document["pools"]
            ],
            "objectives": document["objectives"],
            "routes": document["routes"],
        },
        "scalers": document["scalers"],
    }


def _recovery(newest: Combination, verified: Combination | None, workload: Workload) -> Json:
    last = (
        Restore.objects.filter(
            combination__cluster=workload.cluster,
            combination__namespace=workload.namespace,
            combination__name=workload.name,
        )
        .select_related("operation", "combination")
        .order_by("-id")
        .first()
    )
    return {
        "captured": reference(newest),
        "verified": {**reference(verified), "golden": _golden(verified)} if verified else None,
        "last_restore": {
            "combination": last.combination.number,
            "outcome": last.operation.state,
            "closed_at": last.closed_at.isoformat() if last.closed_at else None,
        }
        if last
        else None,
        "automation_paused": automation_paused(
            cluster=workload.cluster, namespace=workload.namespace, name=workload.name
        ),
    }


def _golden(found: Combination) -> list[Json]:
    """The golden outputs that it names and that are still vouched for, with their answers: an artifact stands on its
    own."""
    named = [each["id"] for each in found.golden.get("outputs") or ()]
    rows = GoldenOutputs.objects.usable().select_related("pool").filter(pk__in=named)
    return [
        {"pool": golden.pool.name, **summary_of(golden), "answers": golden.answers}
        for golden in rows.order_by("pk")
    ]


def reference(found: Combination) -> Json:
    """A combination by number, with what tells it from any other."""
    return {
        "number": found.number,
        "state": found.state,
        "revision": found.revision,
        "digest": found.digest,
        "captured_at": found.captured_at.isoformat(),
        "verified_at": found.verified_at.isoformat() if found.verified_at else None,
        "evidence": found.evidence,
    }
