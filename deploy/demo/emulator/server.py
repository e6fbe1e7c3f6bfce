"""The HTTP door: who asks (token), for what (path), may they (roles), then the store, and its answer as JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

import yaml
from aiohttp import web

from deploy.demo.emulator import admin, below, discovery, patches, reviews
from deploy.demo.emulator.accounts import Accounts
from deploy.demo.emulator.address import Address, parse
from deploy.demo.emulator.escalation import Escalation
from deploy.demo.emulator.faults import Faults
from deploy.demo.emulator.frozen import encoded
from deploy.demo.emulator.kinds import Kind
from deploy.demo.emulator.listing import Lists, encoded_as
from deploy.demo.emulator.parts import Pace, Parts
from deploy.demo.emulator.policies import Policies, PolicyRights
from deploy.demo.emulator.problems import ApiProblem, bad_request, no_such_path, not_allowed, not_found
from deploy.demo.emulator.quotas import Quotas
from deploy.demo.emulator.requests import User
from deploy.demo.emulator.rights import Rights
from deploy.demo.emulator.store import Store
from deploy.demo.emulator.streams import DEFAULT_TIMEOUT_S, Streams, Wish
from deploy.demo.emulator.verbs import Verbs
from deploy.demo.emulator.webhooks import Webhooks

Doc = dict[str, Any]
log = logging.getLogger(__name__)
_MAX_BODY = 16 << 20
_PATCHES = (patches.MERGE, patches.JSON_PATCH, patches.STRATEGIC, patches.APPLY)
_BODIES = ("application/json", "application/yaml")
_HEALTH = ("/healthz", "/livez", "/readyz")


class Server:
    """One API server over one store."""

    def __init__(self, store: Store, accounts: Accounts, *, logs: below.Logs = below.no_logs) -> None:
        self.store = store
        self.accounts = accounts
        self.rights = Rights(store)
        self.lists = Lists(store)
        self.pace = Pace()
        self.streams = Streams(store, self.pace)
        self.faults = Faults()
        self.verbs = Verbs(store)
        self.logs = logs
        self.parts = Parts(store)
        self.policies = Policies(store)
        self.webhooks = Webhooks()
        # In the order of a real server: mutating webhooks, then policies, validating webhooks, quotas.
        store.writes.changers.append(self.webhooks.change)
        store.writes.checks += [
            Escalation(store, self.rights).check,
            PolicyRights(store, self.rights).check,
            self.policies.check,
            self.webhooks.check,
            Quotas(store).check,
        ]

    def application(self) -> web.Application:
        """The aiohttp application; the admin path of faults belongs to it."""
        made = web.Application(client_max_size=_MAX_BODY)
        made.router.add_route("*", "/{path:.*}", self.handle)
        return made

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request; every refusal becomes a Status document."""
        await self.pace.going()
        try:
            return await self._answer(request)
        except ApiProblem as problem:
            return _refused(problem)
        except (ConnectionError, web.HTTPException):
            raise
        except Exception as problem:
            log.exception("%s %s", request.method, request.path)
            return _refused(ApiProblem(500, "InternalError", f"Internal error occurred: {problem!r}", {}))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        user = self.accounts.of_header(request.headers.get("Authorization"))
        address = parse(request.method, request.path, request.query, self.store.kinds)
        self.rights.check(user, address)
        if address.problem is not None:
            raise address.problem
        body = await _body(request) if request.method in ("POST", "PUT", "PATCH", "DELETE") else None
        if address.path.startswith(admin.PATH):
            return _json(await admin.answer(self, request.method, address.path, body))
        fault = self.faults.meet(address, user)
        await fault.before(request)
        answer = await self._do(request, address, user, body)
        await fault.after(request)
        return answer

    async def _do(self, request: web.Request, address: Address, user: User, body: Any) -> web.StreamResponse:
        if address.kind is None:
            if address.review:
                return _json(reviews.answer(address.review, body, user, self.rights, self.accounts), 201)
            return self._page(request, address)
        kind, query = address.kind, dict(request.query)
        if (kind.ref, address.subresource) in below.OWN:
            return self._below(address, kind, user, query, body)
        if address.subresource not in ("", "status", "scale", "finalize"):
            raise no_such_path()
        if (address.subresource == "status" and not kind.status) or (
            address.subresource == "scale" and not kind.scale
        ):
            raise no_such_path()
        if address.verb == "watch":
            return await self.streams.serve(request, _wish(kind, address, query), user.name)
        if address.verb == "list":
            return self._list(kind, address, query)
        if address.verb == "get":
            return _object(kind, address.version, self.verbs.get(address), 200)
        status, doc = self.verbs.write(address, user, body, query, _content_type(request), _agent(request))
        return _object(kind, address.version, doc, status)

    def _page(self, request: web.Request, address: Address) -> web.Response:
        if address.verb != "get":
            raise not_allowed()
        if address.path in _HEALTH:
            return web.Response(text="ok")
        return _json(discovery.answer(address.path, self.store.kinds))

    def _below(
        self, address: Address, kind: Kind, user: User, query: dict[str, str], body: Any
    ) -> web.Response:
        if address.subresource == "log":
            pod = self.store.find(kind, address.namespace, address.name)
            if pod is None:
                raise not_found(kind, address.name)
            return web.Response(text=below.log(pod, query, self.logs))
        if address.verb != "create":
            raise not_allowed()
        where = (kind.ref, address.subresource, address.namespace, address.name)
        return _json(below.create(self.store, self.accounts, user, *where, body or {}), 201)

    def _list(self, kind: Kind, address: Address, query: dict[str, str]) -> web.Response:
        data = self.lists.answer(
            kind,
            address.version,
            address.namespace,
            labels=query.get("labelSelector", ""),
            fields=query.get("fieldSelector", ""),
            limit=_number(query, "limit"),
            token=query.get("continue", ""),
        )
        return web.Response(body=data, content_type="application/json")


def _wish(kind: Kind, address: Address, query: dict[str, str]) -> Wish:
    return Wish(
        kind,
        address.version,
        address.namespace,
        labels=query.get("labelSelector", ""),
        fields=query.get("fieldSelector", ""),
        since=query.get("resourceVersion", ""),
        timeout_s=float(_number(query, "timeoutSeconds") or DEFAULT_TIMEOUT_S),
        bookmarks=query.get("allowWatchBookmarks") == "true",
        initial=query.get("sendInitialEvents") == "true",
    )


def _number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name) or "0"
    if not text.isdigit():
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


def _content_type(request: web.Request) -> str:
    return request.content_type if request.headers.get("Content-Type") else "application/json"


def _agent(request: web.Request) -> str:
    # Who names no field manager is known by the program that it says it is.
    return request.headers.get("User-Agent", "unknown").partition("/")[0] or "unknown"


async def _body(request: web.Request) -> Any:
    """The parsed body. Raises ApiProblem 400 for text that is none, 415 for a format that nobody reads here."""
    kind = _content_type(request)
    accepted = _PATCHES if request.method == "PATCH" else _BODIES
    data = await request.read()
    if data and kind not in accepted:
        listed = ", ".join(accepted)
        why = f"the body of the request was in an unknown format - accepted media types include: {listed}"
        raise ApiProblem(415, "UnsupportedMediaType", why, {})
    if not data:
        if request.method == "DELETE":
            return {}
        raise bad_request("unexpected end of JSON input")
    try:
        return yaml.safe_load(data) if "yaml" in kind and data[:1] != b"{" else json.loads(data)
    except (ValueError, yaml.YAMLError) as problem:
        raise bad_request(f"the body of the request is no {kind}: {problem}") from problem


def _json(doc: Doc, status: int = 200) -> web.Response:
    return web.Response(body=encoded(doc), status=status, content_type="application/json")


def _object(kind: Kind, version: str, doc: Doc, status: int) -> web.Response:
    own = doc.get("kind") == kind.kind and doc.get("apiVersion") == kind.api_version
    data = encoded_as(kind, version, doc) if own else encoded(doc)
    return web.Response(body=data, status=status, content_type="application/json")


def _refused(problem: ApiProblem) -> web.Response:
    answer = _json(problem.document(), problem.status)
    if problem.retry_after_s is not None:
        answer.headers["Retry-After"] = str(problem.retry_after_s)
    return answer
