"""One ext_proc stream = one HTTP request: Envoy's messages in, this router's answers out, in the order Envoy demands.

Made for bodies in FULL_DUPLEX_STREAMED mode, as the llm-d router is: the whole request body is taken in, then the
headers are answered, then the body goes back in pieces. Responses pass through piece by piece.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from envoy.config.core.v3 import base_pb2  # type: ignore[import-untyped]
from envoy.extensions.filters.http.ext_proc.v3 import processing_mode_pb2 as modes  # type: ignore[import-untyped]
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc  # type: ignore[import-untyped]
from envoy.type.v3 import http_status_pb2  # type: ignore[import-untyped]
from google.protobuf import struct_pb2  # type: ignore[import-untyped]

from deploy.demo.router.fleet import Endpoint
from deploy.demo.router.router import Refused, Routed, Router

DESTINATION = "x-gateway-destination-endpoint"
SERVED = "x-gateway-destination-endpoint-served"
METADATA = "envoy.lb"
PREFILLER = "x-prefiller-host-port"
ENCODERS = "x-encoder-hosts-ports"
DROPPED = "x-llm-d-request-dropped-reason"
PIECE = 62_000

Answer = ext_proc.ProcessingResponse
Answers = list[Any]  # of ProcessingResponse; the stubs carry no types
_OVERWRITE = base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD


class Unanswerable(RuntimeError):
    """A message that Envoy cannot send in the mode this router is made for, or not at this point of a stream."""


class Exchange:
    """The state of one stream. `take` answers a message, `close` gives back what the request held."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._headers: Mapping[str, str] = {}
        self._body = bytearray()
        self._received = 0.0
        self._routed: Routed | None = None
        self.over = False

    def take(self, message: ext_proc.ProcessingRequest) -> Answers:
        """Answers to one message, in order; after them the stream is at its end when `over` is set.

        Raises Unanswerable for a body mode other than FULL_DUPLEX_STREAMED and for messages out of order.
        """
        kind = message.WhichOneof("request")
        if self._routed and kind in ("request_headers", "request_body"):
            raise Unanswerable(f"{kind} after the request was decided")
        if kind == "request_headers":
            return self._request_headers(message)
        if kind == "request_body":
            self._body += message.request_body.body
            return self._decide(last=True) if message.request_body.end_of_stream else []
        if kind == "request_trailers":
            trailers = Answer(request_trailers=ext_proc.TrailersResponse())
            decided = [] if self._routed else self._decide(last=False)
            return decided if self.over else [*decided, trailers]
        if kind == "response_headers":
            return self._response_headers(message)
        if kind == "response_body":
            return self._response_body(message.response_body)
        if kind == "response_trailers":
            self.close()
            return [Answer(response_trailers=ext_proc.TrailersResponse())]
        return []

    def close(self) -> None:
        """The request is over, however it ended; harmless when called again."""
        if self._routed and self._routed.ticket:
            self._routed.ticket.finish()

    def _request_headers(self, message: ext_proc.ProcessingRequest) -> Answers:
        self._received = time.monotonic()
        self._headers = _values(message.request_headers.headers.headers)
        if message.request_headers.end_of_stream:
            routed = self._router.route_without_body()
            if isinstance(routed, Refused):
                return self._refused(routed)
            self._routed = routed
            return [_to_endpoint(routed, None)]
        mode = message.protocol_config.request_body_mode
        if message.HasField("protocol_config") and mode != modes.ProcessingMode.FULL_DUPLEX_STREAMED:
            raise Unanswerable("request_body_mode must be FULL_DUPLEX_STREAMED")
        return []

    def _decide(self, *, last: bool) -> Answers:
        body, self._body = bytes(self._body), bytearray()
        routed = self._router.route(self._headers, body, self._received)
        if isinstance(routed, Refused):
            return self._refused(routed)
        self._routed = routed
        pieces = [
            Answer(request_body=ext_proc.BodyResponse(response=common)) for common in _pieces(body, last=last)
        ]
        return [_to_endpoint(routed, len(body)), *pieces]

    def _refused(self, refused: Refused) -> Answers:
        self.over = True
        immediate = ext_proc.ImmediateResponse(
            status=http_status_pb2.HttpStatus(code=refused.status),
            body=refused.message.encode(),
            details="lockstep_demo_router",
        )
        if refused.reason:
            immediate.headers.set_headers.append(_header(DROPPED, refused.reason))
        return [Answer(immediate_response=immediate)]

    def _response_headers(self, message: ext_proc.ProcessingRequest) -> Answers:
        headers = _values(message.response_headers.headers.headers)
        common = ext_proc.CommonResponse()
        served = self._served(message)
        if served is not None:
            common.header_mutation.set_headers.append(_header(SERVED, served.address))
            # A request without a body passes the screener by, in the llm-d router too: nothing to stamp.
            if self._routed and self._routed.ticket:
                for name, value in self._router.stamps(served.pod).items():
                    common.header_mutation.set_headers.append(_header(name, value))
        if self._routed and self._routed.ticket:
            self._routed.ticket.streaming = "text/event-stream" in headers.get("content-type", "")
        if message.response_headers.end_of_stream:
            self.close()
        return [Answer(response_headers=ext_proc.HeadersResponse(response=common))]

    def _served(self, message: ext_proc.ProcessingRequest) -> Endpoint | None:
        """The endpoint that answered: what the proxy says in its metadata, else the one that was picked."""
        fields = message.metadata_context.filter_metadata[METADATA].fields
        said = fields[SERVED].string_value if SERVED in fields else ""
        found = self._router.fleet.at(said) if said else None
        return found or (self._routed.endpoint if self._routed else None)

    def _response_body(self, body: ext_proc.HttpBody) -> Answers:
        ticket = self._routed.ticket if self._routed else None
        if ticket and body.body:
            ticket.first_chunk()
        if body.end_of_stream:
            self.close()
        return [
            Answer(response_body=ext_proc.BodyResponse(response=common))
            for common in _pieces(body.body, last=body.end_of_stream)
        ]


def _to_endpoint(routed: Routed, length: int | None) -> Any:
    """The answer to request headers: where to go, and where prefill is. A client's own such headers are taken away."""
    answer = Answer()
    common = answer.request_headers.response
    common.clear_route_cache = True
    mutation = common.header_mutation
    mutation.set_headers.append(_header(DESTINATION, routed.endpoint.address))
    if length is not None:
        mutation.set_headers.append(_header("content-length", str(length)))
    mutation.remove_headers.append(ENCODERS)
    if routed.prefill is None:
        mutation.remove_headers.append(PREFILLER)
    else:
        mutation.set_headers.append(_header(PREFILLER, routed.prefill.address))
    inner = struct_pb2.Struct()
    inner.update({DESTINATION: routed.endpoint.address})
    answer.dynamic_metadata.fields[METADATA].struct_value.CopyFrom(inner)
    return answer


def _pieces(body: bytes, *, last: bool) -> Iterable[ext_proc.CommonResponse]:
    starts = range(0, max(len(body), 1), PIECE)
    for start in starts:
        common = ext_proc.CommonResponse()
        streamed = common.body_mutation.streamed_response
        streamed.body = body[start : start + PIECE]
        streamed.end_of_stream = last and start == starts[-1]
        yield common


def _header(name: str, value: str) -> base_pb2.HeaderValueOption:
    return base_pb2.HeaderValueOption(
        header=base_pb2.HeaderValue(key=name, raw_value=value.encode()), append_action=_OVERWRITE
    )


def _values(headers: Iterable[base_pb2.HeaderValue]) -> Mapping[str, str]:
    return {one.key.lower(): one.raw_value.decode(errors="replace") or one.value for one in headers}
