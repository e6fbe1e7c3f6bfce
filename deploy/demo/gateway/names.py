"""Names that gateway, routers, engines and clients agree on."""

from __future__ import annotations

CONTROLLER = "lockstep.dev/demo-gateway"
GATEWAY_GROUP = "gateway.networking.k8s.io"
POOL_GROUP = "inference.networking.k8s.io"

# The engine that a router picked, "address:port".
DESTINATION = "x-gateway-destination-endpoint"
# The prefill engine that a router picked; the decode engine fetches the KV cache from it.
PREFILLER = "x-prefiller-host-port"
REVISION = "x-disagg-revision"
OBJECTIVE = "x-llm-d-inference-objective"
FAIRNESS = "x-llm-d-inference-fairness-id"
DROPPED_REASON = "x-llm-d-request-dropped-reason"
PROBE_SECRET = "x-lockstep-probe"

# Set by routers alone. A client that sends one chooses addresses inside the cluster: removed from everybody.
ROUTER_ONLY = (
    DESTINATION,
    "x-gateway-destination-endpoint-subset",
    "x-gateway-destination-endpoint-served",
    PREFILLER,
    "x-encoder-hosts-ports",
    "x-data-parallel-host-port",
    "x-kv-cache-source-host-port",
)
# What a header guard is about: who pins a revision, takes a priority or names a tenant. With deprecated aliases.
GUARDED = (
    REVISION,
    OBJECTIVE,
    "x-gateway-inference-objective",
    FAIRNESS,
    "x-gateway-inference-fairness-id",
)
