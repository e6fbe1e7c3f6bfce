"""The definitions of the request path: pools, objectives, routes, gateways; and of scalers of other projects.

They know what the real definitions fill in and require at the top; the rest is kept as it is."""

from __future__ import annotations

from typing import Any

from deploy.demo.emulator.definitions import arr, definition, number, obj, text, texts, wide

Doc = dict[str, Any]
_GATEWAY = "gateway.networking.k8s.io"
_POOLS = "inference.networking.k8s.io"
_ANY = wide()
_ROOT = {"path": {"type": "PathPrefix", "value": "/"}}


def path_kinds() -> list[Doc]:
    """All of them."""
    return [
        definition(_POOLS, ["v1"], "inferencepools", "InferencePool", _pool(), short=["infpool"]),
        *_objective_kinds("inference.networking.x-k8s.io"),
        *_objective_kinds("llm-d.ai"),
        definition(
            _GATEWAY,
            ["v1", "v1beta1"],
            "gatewayclasses",
            "GatewayClass",
            obj(
                ["spec"],
                spec=wide(["controllerName"], controllerName=text(maxLength=253)),
                status={**_ANY, "default": _waiting("Accepted")},
            ),
            namespaced=False,
            short=["gc"],
        ),
        definition(_GATEWAY, ["v1", "v1beta1"], "gateways", "Gateway", _gateway(), short=["gtw"]),
        definition(_GATEWAY, ["v1", "v1beta1"], "httproutes", "HTTPRoute", _route()),
        *_scaler_kinds(),
    ]


def _objective_kinds(group: str) -> list[Doc]:
    return [
        definition(group, ["v1alpha2"], "inferenceobjectives", "InferenceObjective", _objective(group)),
        definition(group, ["v1alpha2"], "inferencemodelrewrites", "InferenceModelRewrite", _rewrite()),
    ]


def _scaler_kinds() -> list[Doc]:
    return [
        definition(
            "keda.sh",
            ["v1alpha1"],
            "scaledobjects",
            "ScaledObject",
            obj(
                ["spec"],
                spec=wide(
                    ["scaleTargetRef", "triggers"],
                    scaleTargetRef=wide(["name"], name=text()),
                    triggers=arr(wide(["type", "metadata"], type=text(), metadata=_ANY)),
                    fallback=wide(behavior=text(default="static")),
                ),
                status=_ANY,
            ),
            short=["so"],
        ),
        definition(
            "autoscaling.internal.knative.dev",
            ["v1alpha1"],
            "podautoscalers",
            "PodAutoscaler",
            wide(spec=_ANY, status=_ANY),
            short=["kpa", "pa"],
        ),
    ]


def _waiting(*types: str) -> Doc:
    common = {
        "status": "Unknown",
        "reason": "Pending",
        "message": "Waiting for controller",
        "lastTransitionTime": "1970-01-01T00:00:00Z",
    }
    return {"conditions": [{"type": each, **common} for each in types]}


def _pool_ref() -> Doc:
    return obj(
        ["name"],
        group=text(default=_POOLS, maxLength=253),
        kind=text(default="InferencePool", maxLength=63),
        name=text(minLength=1, maxLength=253),
    )


def _pool() -> Doc:
    picker = wide(
        ["name"],
        group=text(default=""),
        kind=text(default="Service"),
        name=text(minLength=1),
        port=obj(["number"], number=number(minimum=1, maximum=65535)),
        failureMode=text("FailOpen", "FailClose", default="FailClose"),
    )
    port = obj(["number"], number=number(minimum=1, maximum=65535))
    spec = obj(
        ["selector", "targetPorts", "endpointPickerRef"],
        appProtocol=text(default="http"),
        selector=obj(["matchLabels"], matchLabels=texts()),
        targetPorts=arr(port, minItems=1, maxItems=8),
        endpointPickerRef=picker,
    )
    return obj(["spec"], spec=spec, status=_ANY)


def _objective(group: str) -> Doc:
    # A condition for whom nobody answers: the name of it differs between the two groups.
    waits = _waiting("Accepted" if group == "llm-d.ai" else "Ready")
    status: Doc = {**_ANY, "default": waits} if group == "llm-d.ai" else _ANY
    return obj(["spec"], spec=obj(["poolRef"], priority=number(), poolRef=_pool_ref()), status=status)


def _rewrite() -> Doc:
    rules = arr(_ANY)
    return obj(["spec"], spec=wide(["poolRef"], poolRef=_pool_ref(), rules=rules), status=_ANY)


def _gateway() -> Doc:
    listener = wide(
        ["name", "port", "protocol"],
        name=text(minLength=1, maxLength=253),
        port=number(minimum=1, maximum=65535),
        protocol=text(),
        allowedRoutes={
            **wide(
                namespaces={
                    **wide(**{"from": text("All", "Selector", "Same", "None", default="Same")}),
                    "default": {"from": "Same"},
                },
            ),
            "default": {"namespaces": {"from": "Same"}},
        },
    )
    spec = wide(
        ["gatewayClassName", "listeners"],
        gatewayClassName=text(minLength=1),
        listeners=arr(listener, by=["name"], minItems=1, maxItems=64),
    )
    return obj(["spec"], spec=spec, status={**_ANY, "default": _waiting("Accepted", "Programmed")})


def _route() -> Doc:
    match = wide(
        path={**obj(type=text(default="PathPrefix"), value=text(default="/")), "default": _ROOT["path"]},
        headers=arr(obj(["name", "value"], type=text(default="Exact"), name=text(), value=text())),
    )
    backend = wide(
        ["name"],
        group=text(default=""),
        kind=text(default="Service"),
        name=text(),
        weight=number(1, minimum=0, maximum=1_000_000),
    )
    rule = wide(
        matches={**arr(match), "default": [_ROOT]},
        backendRefs=arr(backend),
        filters=arr(wide(["type"], type=text())),
    )
    parent = wide(
        ["name"],
        group=text(default=_GATEWAY),
        kind=text(default="Gateway"),
        name=text(),
    )
    spec = wide(
        parentRefs=arr(parent),
        hostnames=arr(text()),
        rules={**arr(rule, minItems=1, maxItems=16), "default": [{"matches": [_ROOT]}]},
    )
    return obj(["spec"], spec=spec, status=_ANY)
