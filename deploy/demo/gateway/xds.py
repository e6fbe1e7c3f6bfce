"""The plan as Envoy's xDS files: clusters, endpoints of routers, and the routes of both listeners."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from deploy.demo.gateway import names
from deploy.demo.gateway.listeners import EDITS, PICK, ROUTER, Doc, files_source, typed
from deploy.demo.gateway.routes import Backend, Edit, Plan, Rule
from deploy.demo.gateway.world import Pool

_HTTP = "envoy.extensions.filters.http"
_APPEND = {"set": "OVERWRITE_IF_EXISTS_OR_ADD", "add": "APPEND_IF_EXISTS_OR_ADD"}
# No cluster has this name; a request that is sent there gets a 500, as Gateway API wants it.
_NOWHERE = "nowhere"
_MANY = 1_000_000


def document(resources: Iterable[Doc]) -> tuple[str, str]:
    """A discovery response and its version, which is a digest: equal content is one version."""
    listed = list(resources)
    version = hashlib.sha256(json.dumps(listed, sort_keys=True).encode()).hexdigest()[:16]
    return json.dumps({"version_info": version, "resources": listed}, indent=1), version


# --- clusters


def make_clusters(pools: Iterable[Pool], folder: Path) -> list[Doc]:
    """Two clusters for each pool: its routers, and its engines by the address that a router chose."""
    return [cluster for pool in pools for cluster in (_routers(pool, folder), _engines(pool))]


def make_endpoints(pool: Pool) -> list[Doc]:
    """The addresses of a pool's routers."""
    hosts = [
        {"endpoint": {"address": {"socket_address": {"address": ip, "port_value": int(port)}}}}
        for ip, _, port in (router.rpartition(":") for router in pool.routers)
    ]
    kind = "envoy.config.endpoint.v3.ClusterLoadAssignment"
    return [typed(kind, cluster_name=router_cluster(pool), endpoints=[{"lb_endpoints": hosts}])]


def router_cluster(pool: Pool) -> str:
    """The name of the cluster of a pool's routers."""
    return f"router:{pool.full_name}"


def endpoints_file(pool: Pool) -> str:
    """The name of the file with the addresses of a pool's routers."""
    return f"eds.{pool.namespace}.{pool.name}.json"


def _routers(pool: Pool, folder: Path) -> Doc:
    source = files_source(folder / endpoints_file(pool))
    return _cluster(
        router_cluster(pool),
        http2=True,
        type="EDS",
        eds_cluster_config={"eds_config": source, "service_name": router_cluster(pool)},
        connect_timeout="1s",
    )


def _engines(pool: Pool) -> Doc:
    return _cluster(
        pool.full_name,
        http2=pool.http2,
        type="ORIGINAL_DST",
        lb_policy="CLUSTER_PROVIDED",
        original_dst_lb_config={"use_http_header": True, "http_header_name": names.DESTINATION},
        connect_timeout="5s",
    )


def _cluster(name: str, *, http2: bool, **fields: Any) -> Doc:
    protocol: Doc = {"http2_protocol_options": {}} if http2 else {"http_protocol_options": {}}
    options = typed("envoy.extensions.upstreams.http.v3.HttpProtocolOptions", explicit_http_config=protocol)
    limits = ("max_connections", "max_pending_requests", "max_requests")
    return typed(
        "envoy.config.cluster.v3.Cluster",
        name=name,
        # The router's queue decides who waits; Envoy must not refuse for it.
        circuit_breakers={"thresholds": [dict.fromkeys(limits, _MANY)]},
        typed_extension_protocol_options={"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options},
        **fields,
    )


# --- routes


def make_routes(plan: Plan, listener: str) -> list[Doc]:
    """The routes of one listener, "public" or "probe"; what is not matched gets a 404."""
    probe = listener == "probe"
    routes = [_route(rule, plan, probe=probe) for rule in plan.rules]
    host = {"name": "all", "domains": ["*"], "routes": routes}
    return [typed("envoy.config.route.v3.RouteConfiguration", name=listener, virtual_hosts=[host])]


def _route(rule: Rule, plan: Plan, *, probe: bool) -> Doc:
    shares = [backend for backend in rule.backends if backend.weight > 0]
    found: Doc = {"name": rule.name, "match": _match(rule)}
    if not shares:
        text = "no backend of this rule has a weight above 0"
        return {**found, "direct_response": {"status": 500, "body": {"inline_string": text}}}
    action = {
        "weighted_clusters": {"clusters": [_share(backend, plan, probe=probe) for backend in shares]},
        "cluster_not_found_response_code": "INTERNAL_SERVER_ERROR",
        "timeout": "0s",
    }
    return {**found, "route": action}


def _match(rule: Rule) -> Doc:
    headers = [{"name": name, "string_match": {"exact": value}} for name, value in rule.headers]
    match: Doc = {"headers": headers} if headers else {}
    if rule.exact:
        return {"path": rule.path, **match}
    kind = "prefix" if rule.path == "/" else "path_separated_prefix"
    return {kind: rule.path, **match}


def _share(backend: Backend, plan: Plan, *, probe: bool) -> Doc:
    """One share of a rule, with everything that depends on which share was drawn."""
    edits = [edit for edit in backend.edits if not (probe and edit.name in names.GUARDED)]
    mutations = {"request_mutations": [_mutation(edit) for edit in edits]}
    configured = {EDITS: typed(f"{_HTTP}.header_mutation.v3.HeaderMutationPerRoute", mutations=mutations)}
    name = _NOWHERE
    if backend.pool is not None:
        pool = plan.pools[backend.pool]
        name = pool.full_name
        configured[ROUTER] = _router_choice(pool)
        configured[PICK] = typed(
            f"{_HTTP}.lua.v3.LuaPerRoute", filter_context={"engines": list(pool.engines)}
        )
    return {"name": name, "weight": backend.weight, "typed_per_filter_config": configured}


def _router_choice(pool: Pool) -> Doc:
    service = {"envoy_grpc": {"cluster_name": router_cluster(pool), "authority": pool.authority}}
    overrides = {"grpc_service": service, "failure_mode_allow": pool.fail_open}
    return typed(f"{_HTTP}.ext_proc.v3.ExtProcPerRoute", overrides=overrides)


def _mutation(edit: Edit) -> Doc:
    if edit.verb == "remove":
        return {"remove": edit.name}
    value = edit.value.replace("%", "%%")  # a percent sign begins a command of Envoy
    return {"append": {"header": {"key": edit.name, "value": value}, "append_action": _APPEND[edit.verb]}}
