"""The definitions of DisaggregatedSet and LeaderWorkerSet, as 0.9.0 has them and as newer managers do.

Pod templates are known as far as the real definitions fill something in; the rest of them is kept as it is.
"""

from __future__ import annotations

from typing import Any

from deploy.demo.emulator.definitions import arr, definition, number, obj, ruled, share, text, texts, wide

Doc = dict[str, Any]
_DS, _LWS = "disaggregatedset.x-k8s.io", "leaderworkerset.x-k8s.io"
_SAME = {
    "rule": "self.roles.all(r, !has(r.spec.replicas) || r.spec.replicas == 0) || "
    "self.roles.all(r, has(r.spec.replicas) && r.spec.replicas > 0)",
    "message": "replicas must be zero for all roles or non-zero for all roles",
}
# External roles have their number elsewhere.
_SAME_BUT_EXTERNAL = {
    "rule": "self.roles.filter(r, !has(r.scaling) || r.scaling.mode != 'External')"
    ".all(r, !has(r.spec.replicas) || r.spec.replicas == 0) || "
    "self.roles.filter(r, !has(r.scaling) || r.scaling.mode != 'External')"
    ".all(r, has(r.spec.replicas) && r.spec.replicas > 0)",
    "message": "replicas must be zero for all roles or non-zero for all roles",
}


def set_kinds(*, newer: bool = False) -> list[Doc]:
    """The definitions; ``newer`` with slices, placement and roles that are scaled from outside."""
    found = [
        definition(_DS, ["v1"], "disaggregatedsets", "DisaggregatedSet", _set_schema(newer)),
        definition(
            _LWS,
            ["v1"],
            "leaderworkersets",
            "LeaderWorkerSet",
            obj(spec=_groups(), status=_group_status()),
            short=["lws"],
            scale={
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.hpaPodSelector",
            },
        ),
    ]
    if newer:
        found.append(_role_scalers())
    return found


def _set_schema(newer: bool) -> Doc:
    role: Doc = {
        "name": text(minLength=1, maxLength=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"),
        "metadata": _metadata(),
        "spec": _groups(),
    }
    more: Doc = {}
    if newer:
        role["scaling"] = obj(mode=text("Static", "External", default="Static"))
        more = {
            "slices": number(1, minimum=1, maximum=100),
            "placementPolicy": obj(
                type=text("None", "ExclusiveSlice", "ExclusiveTopology", default="None"), topology=text()
            ),
        }
    roles = arr(obj(["name"], **role), by=["name"], minItems=2, maxItems=10)
    spec = ruled(obj(["roles"], roles=roles, **more), _SAME_BUT_EXTERNAL if newer else _SAME)
    counts = {name: number() for name in ("replicas", "readyReplicas", "updatedReplicas")}
    status: Doc = {
        "conditions": _conditions(),
        "roleStatuses": arr(obj(["name"], name=text(), **counts), by=["name"]),
    }
    if newer:
        status["observedGeneration"] = number()
    return obj(["spec"], spec=spec, status=obj(**status))


def _groups() -> Doc:
    """The spec of a LeaderWorkerSet, which is that of a role too."""
    pace = obj(maxSurge=share(0), maxUnavailable=share(1), partition=number(0))
    template = obj(
        ["workerTemplate"],
        leaderTemplate=_template(),
        workerTemplate=_template(),
        size=number(1),
        restartPolicy=text(
            "Default",
            "RecreateGroupOnPodRestart",
            "RecreateGroupAfterStart",
            "None",
            default="RecreateGroupOnPodRestart",
        ),
        subGroupPolicy=obj(
            subGroupPolicyType=text("LeaderWorker", "LeaderExcluded", default="LeaderWorker"),
            subGroupSize=number(),
        ),
        volumeClaimTemplates=arr(wide()),
        persistentVolumeClaimRetentionPolicy=obj(whenDeleted=text(), whenScaled=text()),
    )
    return obj(
        ["leaderWorkerTemplate"],
        replicas=number(1),
        leaderWorkerTemplate=template,
        rolloutStrategy=obj(
            ["type"],
            type=text("RollingUpdate", default="RollingUpdate"),
            rollingUpdateConfiguration=pace,
        ),
        startupPolicy=text("LeaderCreated", "LeaderReady", default="LeaderCreated"),
        networkConfig=obj(["subdomainPolicy"], subdomainPolicy=text("Shared", "UniquePerReplica")),
    )


def _metadata() -> Doc:
    return obj(annotations=texts(), labels=texts(), finalizers=arr(text()), name=text(), namespace=text())


def _template() -> Doc:
    pods = wide(
        ["containers"],
        containers=arr(_container(), by=["name"]),
        initContainers=arr(_container(), by=["name"]),
        imagePullSecrets=arr(obj(name=text(default="")), by=["name"]),
        volumes=arr(_volume(), by=["name"]),
    )
    return obj(metadata=_metadata(), spec=pods)


def _container() -> Doc:
    named = wide(name=text(default=""))
    source = wide(configMapKeyRef=named, secretKeyRef=named)
    probe = wide(grpc=wide(service=text(default="")))
    return wide(
        ["name"],
        name=text(),
        env=arr(wide(["name"], name=text(), valueFrom=source), by=["name"]),
        envFrom=arr(wide(configMapRef=named, secretRef=named)),
        # The real definition has containerPort and protocol as keys; the default makes the protocol one.
        ports=arr(wide(["containerPort"], containerPort=number(), protocol=text(default="TCP"))),
        livenessProbe=probe,
        readinessProbe=probe,
        startupProbe=probe,
    )


def _volume() -> Doc:
    named = wide(name=text(default=""))
    sources = arr(wide(configMap=named, secret=named))
    return wide(["name"], name=text(), configMap=named, projected=wide(sources=sources))


def _conditions() -> Doc:
    fields = {name: text() for name in ("type", "reason", "message", "lastTransitionTime")}
    status = text("True", "False", "Unknown")
    required = ["type", "status", "reason", "message", "lastTransitionTime"]
    return arr(obj(required, status=status, observedGeneration=number(), **fields), by=["type"])


def _group_status() -> Doc:
    names = ("replicas", "readyReplicas", "updatedReplicas", "observedGeneration")
    counts = {name: number() for name in names}
    return obj(conditions=_conditions(), hpaPodSelector=text(), **counts)


def _role_scalers() -> Doc:
    status = obj(replicas=number(), selector=text(), observedGeneration=number(), conditions=_conditions())
    return definition(
        _DS,
        ["v1"],
        "disaggregatedsetrolescalers",
        "DisaggregatedSetRoleScaler",
        obj(spec=obj(replicas=number(0, minimum=0)), status=status),
        short=["dsrs"],
        scale={
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    )
