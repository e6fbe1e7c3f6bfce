"""The admin port: readiness, books, faults, and what each engine is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiohttp import web

from deploy.demo.engines.compat import compatibility_hash
from deploy.demo.engines.faults import BadFault
from deploy.demo.engines.fleet import Fleet, Host

_MOST_ROWS = 10_000


def admin_app(fleet: Fleet, namespaces: Sequence[str]) -> web.Application:
    """GET /ready /engines /books /books/summary /faults · POST /faults /books/reset · DELETE /faults[?id=]."""
    admin = _Admin(fleet, namespaces)
    app = web.Application()
    app.add_routes(
        [
            web.get("/ready", admin.ready),
            web.get("/engines", admin.engines),
            web.get("/books", admin.books),
            web.get("/books/summary", admin.summary),
            web.post("/books/reset", admin.reset),
            web.get("/faults", admin.faults),
            web.post("/faults", admin.add_fault),
            web.delete("/faults", admin.remove_faults),
        ]
    )
    return app


class _Admin:
    def __init__(self, fleet: Fleet, namespaces: Sequence[str]) -> None:
        self._fleet = fleet
        self._namespaces = namespaces

    async def ready(self, request: web.Request) -> web.Response:
        """200 when the first list of pods was read and every running pod of it answers."""
        fleet = self._fleet
        body = {"engines": len(fleet.addresses), "pods": len(fleet.hosts), "problems": fleet.problems}
        return web.json_response(body, status=200 if fleet.has_listed(self._namespaces) else 503)

    async def engines(self, request: web.Request) -> web.Response:
        """What answers where, and the last lines of each engine's log with ?log=N."""
        lines = _number(request, "log", 0)
        hosts = [self._fleet.hosts[key] for key in sorted(self._fleet.hosts)]
        return web.json_response({"engines": [_described(host, lines) for host in hosts]})

    async def books(self, request: web.Request) -> web.Response:
        """Rows after ?since=SEQ, at most ?limit= of them (1000)."""
        limit = min(_MOST_ROWS, max(1, _number(request, "limit", 1000)))
        return web.json_response(self._fleet.books.page(_number(request, "since", 0), limit))

    async def summary(self, request: web.Request) -> web.Response:
        """Counts of everything since the last reset."""
        return web.json_response(self._fleet.books.summary())

    async def reset(self, request: web.Request) -> web.Response:
        """Forget all rows and counts."""
        self._fleet.books.reset()
        return web.json_response({})

    async def faults(self, request: web.Request) -> web.Response:
        """The live rules."""
        return web.json_response({"faults": [rule.document() for rule in self._fleet.faults.rules]})

    async def add_fault(self, request: web.Request) -> web.Response:
        """{match, fault} → the rule with its id; 400 with the reason for what is not understood."""
        try:
            body = await request.json()
            if not isinstance(body, dict):
                raise BadFault("the body is an object of match and fault")
            rule = self._fleet.add_fault(body.get("match") or {}, body.get("fault"))
        except ValueError as problem:
            return web.json_response({"detail": str(problem)}, status=400)
        return web.json_response(rule.document(), status=201)

    async def remove_faults(self, request: web.Request) -> web.Response:
        """One rule by ?id=, or all."""
        given = request.query.get("id")
        gone = self._fleet.faults.remove(_number(request, "id", 0) if given else None)
        return web.json_response({"removed": gone})


def _described(host: Host, lines: int) -> dict[str, Any]:
    pod, engine = host.pod, host.engine
    found: dict[str, Any] = {
        "pod": pod.key,
        "set": pod.set_name,
        "role": pod.role,
        "revision": pod.revision,
        "address": pod.address,
        "state": pod.state,
        "answers": engine is not None,
        "starts": host.starts,
    }
    if engine is not None:
        spec = engine.spec
        found |= {
            "engine_id": engine.engine_id,
            "version": spec.version,
            "model": spec.model,
            "model_revision": spec.revision,
            "quantization": spec.quantization,
            "connector": spec.connector,
            "tp": spec.tp,
            "block_size": spec.block_size,
            "link": spec.link,
            "compatibility_hash": compatibility_hash(spec),
        }
        if lines:
            found["log"] = list(engine.log)[-lines:]
    return found


def _number(request: web.Request, name: str, usual: int) -> int:
    try:
        return int(request.query.get(name, usual))
    except ValueError:
        raise web.HTTPBadRequest(text=f"{name} is a whole number") from None
