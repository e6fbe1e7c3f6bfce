"""The two listeners of Envoy: one for everybody, one for probes; alike but for the secret and their routes.

How a request runs: headers that only routers may set go before anything looks at them; the route is chosen once,
with one draw over the weights; then, by the configuration of the drawn share, the route's header edits, the
router of that pool (ext_proc), and the engine that it picked (ORIGINAL_DST by header).

The header edits run *before* the router. A route's own request_headers_to_remove would act only when the request
leaves Envoy: the router would still see what the client sent, and no header guard would guard anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.demo.gateway import names

Doc = dict[str, Any]

# Names of filters, which are also the keys of what a route configures for them.
EDITS, ROUTER, PICK = "route-headers", "router", "destination"

_TYPES = "type.googleapis.com"
_HTTP = "envoy.extensions.filters.http"
# A queue of the router may hold a request for many minutes.
_PATIENCE = "3600s"

# What no router has touched, because none answered and its pool fails open, goes to the pool's ready engines in
# turn. Of several destinations in the header the first is taken: ORIGINAL_DST understands one.
_PICK_LUA = f"""
local turn = 0
function envoy_on_request(request)
  local headers = request:headers()
  local picked = headers:get("{names.DESTINATION}")
  if picked then
    local first = picked:match("^%s*([^,%s]+)")
    if first and first ~= picked then headers:replace("{names.DESTINATION}", first) end
    return
  end
  local engines = request:filterContext():get("engines")
  if engines and #engines > 0 then
    turn = turn % #engines + 1
    headers:replace("{names.DESTINATION}", engines[turn])
  end
end
"""

_LOG_FORMAT = {
    "time": "%START_TIME(%Y-%m-%dT%H:%M:%S.%3fZ)%",
    "request_id": "%REQ(x-request-id)%",
    "method": "%REQ(:method)%",
    "path": "%REQ(:path)%",
    "route": "%ROUTE_NAME%",
    "pool": "%UPSTREAM_CLUSTER%",
    "destination": f"%REQ({names.DESTINATION})%",
    "engine": "%UPSTREAM_HOST%",
    "prefiller": f"%REQ({names.PREFILLER})%",
    "revision_asked": f"%REQ({names.REVISION})%",
    "revision_served": f"%RESP({names.REVISION})%",
    "objective": f"%REQ({names.OBJECTIVE})%",
    "fairness": f"%REQ({names.FAIRNESS})%",
    "dropped_reason": f"%RESP({names.DROPPED_REASON})%",
    "status": "%RESPONSE_CODE%",
    "flags": "%RESPONSE_FLAGS%",
    "details": "%RESPONSE_CODE_DETAILS%",
    "duration_ms": "%DURATION%",
    "bytes_in": "%BYTES_RECEIVED%",
    "bytes_out": "%BYTES_SENT%",
}


@dataclass(frozen=True)
class Listening:
    """Where Envoy listens and what it writes; ``probe_secret`` empty: every request on the probe port passes."""

    address: str
    port: int
    probe_address: str
    probe_port: int
    probe_secret: str = ""
    access_log: Path | None = None


def typed(kind: str, /, **fields: Any) -> Doc:
    """A message with its type, as Envoy's JSON wants it."""
    return {"@type": f"{_TYPES}/{kind}", **fields}


def files_source(path: Path) -> Doc:
    """The configuration source of one file that is replaced by rename."""
    return {"path_config_source": {"path": str(path)}, "resource_api_version": "V3"}


def make_listeners(listening: Listening, folder: Path) -> list[Doc]:
    """Both listeners; their routes are the files public.json and probe.json of ``folder``."""
    public = _listener("public", listening.address, listening.port, listening, folder, [])
    secret = [_secret_filter(listening.probe_secret)] if listening.probe_secret else []
    probe = _listener("probe", listening.probe_address, listening.probe_port, listening, folder, secret)
    return [public, probe]


def _listener(
    name: str, address: str, port: int, listening: Listening, folder: Path, before: Iterable[Doc]
) -> Doc:
    early = _removals(names.ROUTER_ONLY)
    early.append({"remove_on_match": {"key_matcher": {"prefix": "x-envoy-"}}})
    manager = typed(
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix=name,
        rds={"route_config_name": name, "config_source": files_source(folder / f"{name}.json")},
        http_filters=[*before, *_filters()],
        early_header_mutation_extensions=[
            {
                "name": "router-only-headers",
                "typed_config": typed(
                    "envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation",
                    mutations=early,
                ),
            }
        ],
        access_log=[_log(name, listening.access_log)] if listening.access_log else [],
        use_remote_address=True,
        preserve_external_request_id=True,
        always_set_request_id_in_response=True,
        normalize_path=True,
        merge_slashes=True,
        server_header_transformation="PASS_THROUGH",
        stream_idle_timeout=_PATIENCE,
        request_headers_timeout="10s",
    )
    return typed(
        "envoy.config.listener.v3.Listener",
        name=name,
        address={"socket_address": {"address": address, "port_value": port}},
        filter_chains=[{"filters": [{"name": "http", "typed_config": manager}]}],
    )


def _filters() -> list[Doc]:
    return [
        _filter(
            "probe-header",
            f"{_HTTP}.header_mutation.v3.HeaderMutation",
            mutations={"request_mutations": _removals([names.PROBE_SECRET])},
        ),
        _filter(EDITS, f"{_HTTP}.header_mutation.v3.HeaderMutation"),
        _router_filter(),
        {
            **_filter(PICK, f"{_HTTP}.lua.v3.Lua", default_source_code={"inline_string": _PICK_LUA}),
            "disabled": True,
        },
        _filter("upstream", f"{_HTTP}.router.v3.Router", suppress_envoy_headers=True),
    ]


def _router_filter() -> Doc:
    """ext_proc as routers of inference pools expect it. Off, until a route names the router's cluster."""
    streamed = typed(
        f"{_HTTP}.ext_proc.v3.ExternalProcessor",
        grpc_service={"envoy_grpc": {"cluster_name": "set-by-the-route"}},
        processing_mode={
            "request_header_mode": "SEND",
            "request_body_mode": "FULL_DUPLEX_STREAMED",
            "request_trailer_mode": "SEND",
            "response_header_mode": "SEND",
            "response_body_mode": "FULL_DUPLEX_STREAMED",
            "response_trailer_mode": "SEND",
        },
        message_timeout="1000s",
        # The share was drawn; what the router changes in the headers must not choose a route again.
        route_cache_action="RETAIN",
        metadata_options={"receiving_namespaces": {"untyped": ["envoy.lb"]}},
        status_on_error={"code": "ServiceUnavailable"},
    )
    return {"name": ROUTER, "typed_config": streamed, "disabled": True}


def _secret_filter(secret: str) -> Doc:
    matcher = {"header": {"name": names.PROBE_SECRET, "string_match": {"exact": secret}}}
    policy = {"permissions": [{"any": True}], "principals": [matcher]}
    return _filter(
        "probe-secret", f"{_HTTP}.rbac.v3.RBAC", rules={"action": "ALLOW", "policies": {"probe": policy}}
    )


def _removals(headers: Iterable[str]) -> list[Doc]:
    return [{"remove": header} for header in headers]


def _filter(name: str, kind: str, **fields: Any) -> Doc:
    return {"name": name, "typed_config": typed(kind, **fields)}


def _log(listener: str, path: Path) -> Doc:
    lines = {"json_format": {"listener": listener, **_LOG_FORMAT}}
    kind = "envoy.extensions.access_loggers.file.v3.FileAccessLog"
    return {"name": "file", "typed_config": typed(kind, path=str(path), log_format=lines)}
