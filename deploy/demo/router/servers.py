"""The router's ports: ext_proc, gRPC health, and the metrics port with the state of the plugins."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable
from typing import Any

import grpc
import prometheus_client
from aiohttp import web
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as ext_proc_grpc  # type: ignore[import-untyped]
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]

from deploy.demo.router.exchange import Exchange, Unanswerable
from deploy.demo.router.router import Router

log = logging.getLogger(__name__)

MESSAGE_LIMIT = 64 * 1024 * 1024
HEALTH_SERVICES = (
    "",
    "inference-extension",
    "liveness",
    "readiness",
    "envoy.service.ext_proc.v3.ExternalProcessor",
)
_OPTIONS = (
    ("grpc.so_reuseport", 0),  # a second router on the same port must fail, not share it
    ("grpc.max_receive_message_length", MESSAGE_LIMIT),
    ("grpc.max_send_message_length", MESSAGE_LIMIT),
)


class ExtProc:
    """The ext_proc service: one stream per HTTP request."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self.open = 0

    async def Process(self, request_iterator: Any, context: Any) -> None:
        """Answer one stream to its end; whatever ends it, the books get the request back."""
        exchange = Exchange(self._router)
        self.open += 1
        try:
            while not exchange.over:
                message = await context.read()
                if message is grpc.aio.EOF:
                    return
                for answer in exchange.take(message):
                    await context.write(answer)
        except Unanswerable as error:
            log.error("cannot answer this gateway: %s", error)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        finally:
            self.open -= 1
            exchange.close()


def _health_messages() -> tuple[Any, Any]:
    """Request and response of grpc.health.v1, built here because no installed package ships them."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="grpc/health/v1/health.proto", package="grpc.health.v1")
    file.syntax = "proto3"
    asked = file.message_type.add(name="HealthCheckRequest")
    asked.field.add(name="service", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    answered = file.message_type.add(name="HealthCheckResponse")
    status = answered.enum_type.add(name="ServingStatus")
    for number, name in enumerate(("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")):
        status.value.add(name=name, number=number)
    answered.field.add(
        name="status",
        number=1,
        type=field.TYPE_ENUM,
        label=field.LABEL_OPTIONAL,
        type_name=".grpc.health.v1.HealthCheckResponse.ServingStatus",
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = ("grpc.health.v1.HealthCheckRequest", "grpc.health.v1.HealthCheckResponse")
    request, response = (message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names)
    return request, response


HealthRequest, HealthResponse = _health_messages()


def health_handler(serving: Callable[[], bool]) -> grpc.GenericRpcHandler:
    """The Check call of grpc.health.v1; a service that the llm-d router does not name is NOT_FOUND."""

    async def check(request: Any, context: Any) -> Any:
        if request.service not in HEALTH_SERVICES:
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return HealthResponse(status=1 if serving() else 2)

    unary = grpc.unary_unary_rpc_method_handler(
        check,
        request_deserializer=HealthRequest.FromString,
        response_serializer=HealthResponse.SerializeToString,
    )
    return grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": unary})


async def start_grpc(address: str, port: int, add: Callable[[Any], None]) -> Any:
    """A started gRPC server; RuntimeError when the port is taken."""
    server = grpc.aio.server(options=_OPTIONS)
    add(server)
    server.add_insecure_port(f"{address}:{port}")
    await server.start()
    return server


def ext_proc_adder(service: ExtProc) -> Callable[[Any], None]:
    """Adds the ext_proc service to a server."""
    return lambda server: ext_proc_grpc.add_ExternalProcessorServicer_to_server(service, server)


def metrics_app(router: Router) -> web.Application:
    """`GET /metrics` and `GET /debug/plugins/state`."""

    async def metrics(_: web.Request) -> web.Response:
        text = prometheus_client.generate_latest(router.books.registry)
        return web.Response(body=text, headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST})

    async def state(_: web.Request) -> web.Response:
        return web.json_response(plugin_state(router))

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics), web.get("/debug/plugins/state", state)])
    return app


def plugin_state(router: Router) -> dict[str, Any]:
    """Names and types of the plugins, and the books of in-flight requests as the llm-d router shows its own."""
    plugins: dict[str, Any] = {
        one.name: {"name": one.name, "type": one.type, "message": "plugin does not support state collection"}
        for one in router.config.plugins.values()
    }
    endpoints: dict[str, int] = {}
    for (name, namespace, _, _), count in router.books.in_flight.items():
        endpoints[f"{namespace}/{name}"] = endpoints.get(f"{namespace}/{name}", 0) + count
    plugins["inflight-load-producer"] = {
        "name": "inflight-load-producer",
        "type": "inflight-load-producer",
        "state": {
            "endpoints": [{"endpoint": name, "requests": count} for name, count in sorted(endpoints.items())],
            "totalEndpoints": len(endpoints),
            "truncated": False,
        },
    }
    now = datetime.datetime.now(datetime.UTC).isoformat()
    return {"timestamp": now, "plugins": dict(sorted(plugins.items()))}
