"""The HTTP face of one engine: the OpenAI endpoints, health, metrics, and the sidecar that calls a prefill engine."""

from __future__ import annotations

import ipaddress
import json
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import aiohttp
from aiohttp import web

from deploy.demo.engines.books import CUT, FAIRNESS_HEADER, OBJECTIVE_HEADER, Books
from deploy.demo.engines.engine import Engine
from deploy.demo.engines.jobs import EngineProblem, Work
from deploy.demo.engines.metrics import CONTENT_TYPE
from deploy.demo.engines.openai import CHAT, COMPLETIONS, Ask, Form, prefill_body, problem_body, read_ask

PREFILL_HEADER = "x-prefiller-host-port"
REVISION_HEADER = "x-disagg-revision"
_METRICS_TYPE = {"Content-Type": CONTENT_TYPE}
Peers = Callable[[str], Engine | None]


class Relayed(Exception):
    """The prefill half failed; its answer is the client's."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"prefill answered {status}")
        self.status = status
        self.body = body


class Serving:
    """Answers for one engine. ``loading`` engines answer 503 to everything, ``ending`` ones close after each answer.

    ``crash`` is called to make it crash; it does not return.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        peers: Peers,
        books: Books,
        client: aiohttp.ClientSession,
        crash: Callable[[], None],
    ) -> None:
        self.engine = engine
        self.loading = False
        self.ready = True
        self.ending = False
        self.busy: set[object] = set()  # connections that wait for an answer
        self._peers = peers
        self._books = books
        self._client = client
        self._crash = crash

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request of any kind."""
        self.busy.add(request.protocol)
        try:
            answer = await self._handle(request)
            if self.ending:
                answer.force_close()
            return answer
        finally:
            self.busy.discard(request.protocol)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if self.loading:
            return web.json_response({"error": {"message": "the engine is loading", "code": 503}}, status=503)
        if request.method == "POST" and path in (COMPLETIONS, CHAT):
            return await self._complete(request, chat=path == CHAT)
        if request.method != "GET":
            return _not_found()
        if path == "/metrics":
            return web.Response(body=self.engine.metrics.exposition().encode(), headers=_METRICS_TYPE)
        if path in ("/health", "/ping"):
            return web.Response(status=200 if self.ready else 503)
        if path == "/version":
            return web.json_response({"version": self.engine.spec.version})
        return web.json_response(self._models()) if path == "/v1/models" else _not_found()

    def _models(self) -> dict[str, Any]:
        spec = self.engine.spec
        card = {
            "id": spec.served_name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "vllm",
            "root": spec.model,
            "parent": None,
            "max_model_len": spec.max_length,
        }
        return {"object": "list", "data": [card]}

    # --- completions

    async def _complete(self, request: web.BaseRequest, *, chat: bool) -> web.StreamResponse:
        note = _Note(request, self.engine)
        try:
            answer = await self._answer(request, note, chat=chat)
        except EngineProblem as problem:
            answer = web.json_response(problem_body(problem), status=problem.status)
            note.error = str(problem)
        except Relayed as relayed:
            answer = web.Response(body=relayed.body, status=relayed.status, content_type="application/json")
            note.error = str(relayed)
        except BaseException:
            note.enter(self._books, CUT)
            raise
        note.enter(self._books, answer.status)
        return answer

    async def _answer(self, request: web.BaseRequest, note: _Note, *, chat: bool) -> web.StreamResponse:
        self._maybe_crash()
        self._maybe_refuse()
        try:
            body = json.loads(await request.read())
        except ValueError:
            raise EngineProblem(400, "the body is not JSON") from None
        engine = self.engine
        ask = read_ask(
            body, chat=chat, spec=engine.spec, request_id=note.request_id, any_seed=engine.any_seed
        )
        note.leg = ask.kept
        address = request.headers.get(PREFILL_HEADER, "").split(",")[0].strip()
        if address and not ask.kept:
            ask = await self._prefilled(ask, body, address, request.path, note)
        return await self._serve(request, ask, note)

    def _maybe_crash(self) -> None:
        crash = self.engine.fault("crash")
        if crash and 0 < crash["after_requests"] <= self.engine.served + 1:
            self._crash()

    def _maybe_refuse(self) -> None:
        refuse = self.engine.fault("refuse")
        if refuse and self.engine.happens(refuse["share"]):
            status = int(refuse["status"])
            self.engine.metrics.count("vllm:admission_rejections", label="overloaded")
            kind = "RateLimitError" if status == 429 else "ServiceUnavailableError"
            raise EngineProblem(status, "the engine takes no requests now", kind)

    async def _prefilled(self, ask: Ask, body: dict[str, Any], address: str, path: str, note: _Note) -> Ask:
        """The sidecar's part: have the prompt computed elsewhere, then read its KV here."""
        host = address.rpartition(":")[0] or address
        peer = self._peers(host)
        if peer is not None:
            note.prefill, note.prefill_revision = peer.pod.name, peer.pod.revision
        elif not _is_loopback(host):
            raise EngineProblem(403, "this prefill address is none of the pool's", "ForbiddenError")
        if len(ask.jobs) > 1:
            raise EngineProblem(400, "KV is transferred for one choice only")
        headers = {"x-request-id": note.request_id}
        try:
            async with self._client.post(
                f"http://{address}{path}", json=prefill_body(body), headers=headers
            ) as answer:
                content = await answer.read()
                if answer.status != 200:
                    raise Relayed(answer.status, content)
        except (aiohttp.ClientError, TimeoutError, ValueError) as problem:
            raise EngineProblem(
                502, f"no answer from prefill {address}: {problem}", "BadGatewayError"
            ) from None
        transfer = json.loads(content).get("kv_transfer_params")
        note.kv = "local"
        if not transfer or not self.engine.spec.connector:
            return ask  # without a connector on both sides nothing can be transferred
        return replace(ask, jobs=(replace(ask.jobs[0], remote=transfer),))

    async def _serve(self, request: web.BaseRequest, ask: Ask, note: _Note) -> web.StreamResponse:
        note.kv = "failed" if ask.jobs[0].remote else "local"
        works = note.works
        try:
            for job in ask.jobs:
                works.append(await self.engine.begin(job))
            if works[0].fetched:
                note.kv = "transferred"
            if ask.stream:
                return await self._stream(request, ask, works[0])
            return await self._whole(ask, works)
        finally:
            for work in works:
                self.engine.end(work, "abort", emitted=0)

    async def _whole(self, ask: Ask, works: list[Work]) -> web.Response:
        await self.engine.clock.sleep(max((len(work.tokens) - 1) * work.gap_s for work in works))
        transfer = None
        for work in works:
            transfer = self.engine.end(work, work.reason)
        bad = self.engine.fault("status")
        if bad and self.engine.happens(bad["share"]):
            raise EngineProblem(int(bad["code"]), str(bad["message"]), "InternalServerError")
        return _json(Form(ask, self.engine.spec).whole(works, transfer))

    async def _stream(self, request: web.BaseRequest, ask: Ask, work: Work) -> web.StreamResponse:
        bad = self.engine.fault("status")
        if bad and self.engine.happens(bad["share"]):
            raise EngineProblem(int(bad["code"]), str(bad["message"]), "InternalServerError")
        form = Form(ask, self.engine.spec)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        sent = offset = 0
        try:
            for token in work.tokens:
                if sent:
                    await self.engine.clock.sleep(work.gap_s)
                sent += 1
                reason = work.reason if sent == len(work.tokens) else None
                await response.write(form.chunk(token, offset, reason))
                offset += len(token.text)
        except BaseException:
            self.engine.end(work, "abort", emitted=sent)
            raise
        self.engine.end(work, work.reason)
        await response.write(form.last(work))
        await response.write_eof()
        return response


class _Note:
    """What is known of a request so far; becomes a row of the books at its end."""

    def __init__(self, request: web.BaseRequest, engine: Engine) -> None:
        headers = request.headers
        self.request_id = headers.get("x-request-id") or uuid.uuid4().hex
        self.works: list[Work] = []
        self.leg = False
        self.kv = self.error = self.prefill = self.prefill_revision = ""
        self._engine = engine
        self._objective = headers.get(OBJECTIVE_HEADER, "")
        self._fairness = headers.get(FAIRNESS_HEADER, "")
        self._asked = headers.get(REVISION_HEADER, "")
        self._started = time.monotonic()

    def enter(self, books: Books, status: int) -> None:
        """Write the row; halves of other engines' requests are only counted."""
        if self.leg:
            books.count_leg()
            return
        pod = self._engine.pod
        books.enter(
            request_id=self.request_id,
            set=f"{pod.namespace}/{pod.set_name}" if pod.set_name else pod.namespace,
            role=pod.role,
            decode=pod.name,
            decode_revision=pod.revision,
            prefill=self.prefill,
            prefill_revision=self.prefill_revision,
            mixed=bool(self.prefill) and self.prefill_revision != pod.revision,
            objective=self._objective,
            fairness_id=self._fairness,
            asked_revision=self._asked,
            status=status,
            kv=self.kv,
            prompt_tokens=sum(work.job.prompt.tokens for work in self.works),
            tokens=sum(len(work.tokens) for work in self.works),
            corrupted=status == 200 and any(work.wrong for work in self.works),
            seconds=round(time.monotonic() - self._started, 6),
            error=self.error,
        )


def _json(document: dict[str, Any]) -> web.Response:
    return web.Response(body=json.dumps(document).encode(), content_type="application/json")


def _not_found() -> web.Response:
    return web.json_response({"detail": "Not Found"}, status=404)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
