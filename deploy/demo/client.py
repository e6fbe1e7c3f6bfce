"""A small client of Lockstep's REST API, as anybody's script might be: standard library, JSON in and out."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from http.cookiejar import CookieJar
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, OpenerDirector, ProxyHandler, Request, build_opener

Json = dict[str, Any]
_TIMEOUT_S = 20.0


class ApiProblem(RuntimeError):
    """An answer other than 2xx: `status` and the problem document (`code`, `detail`, `next_action`, ...)."""

    def __init__(self, request: str, status: int, problem: Json) -> None:
        super().__init__(f"{request} answered {status}: {json.dumps(problem, indent=2)}")
        self.status = status
        self.code = str(problem.get("code", ""))
        self.problem = problem


class Client:
    """One caller: a program with a token, or a person who signs in and keeps cookies."""

    def __init__(self, address: str, *, token: str = "") -> None:
        self._address = address
        self._token = token
        self._csrf = ""
        self._opener = opener(HTTPCookieProcessor(CookieJar()))
        self.etag = ""  # of the last answer

    def sign_in(self, username: str, password: str) -> Json:
        """Open a session; later calls are this person's. Votes need one, and a recent one."""
        opened = self.post("/api/v1/session", {"username": username, "password": password})
        self._csrf = str(opened["csrf_token"])
        return opened

    def get(self, path: str, **query: str | int) -> Json:
        """One document, or one page of a list."""
        return self._call("GET", path + (f"?{urlencode(query)}" if query else ""), None, {})

    def list(self, path: str, **query: str | int) -> list[Json]:
        """The first page of a list."""
        return list(self.get(path, **query)["results"])

    def post(self, path: str, body: Json | None = None, *, if_match: str = "") -> Json:
        """A named action, with an Idempotency-Key of its own, and If-Match where a version is asked for."""
        headers = {"Idempotency-Key": str(uuid.uuid4()), **({"If-Match": if_match} if if_match else {})}
        return self._call("POST", path, body or {}, headers)

    def patch(self, path: str, body: Json, *, if_match: str) -> Json:
        """An edit of what was seen under that version."""
        return self._call("PATCH", path, body, {"If-Match": if_match})

    def _call(self, method: str, path: str, body: Json | None, extra: Mapping[str, str]) -> Json:
        headers = {"Accept": "application/json", **extra}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if self._csrf:
            headers["X-CSRFToken"] = self._csrf
        data = None if body is None else json.dumps(body).encode()
        request = Request(self._address + path, data=data, headers=headers, method=method)
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                self.etag = answer.headers.get("ETag", "")
                return _parsed(answer.read())
        except HTTPError as error:
            raise ApiProblem(f"{method} {path}", error.code, _parsed(error.read())) from error


def opener(*handlers: HTTPCookieProcessor) -> OpenerDirector:
    """An opener that asks no proxy: everything here is on this machine."""
    return build_opener(ProxyHandler({}), *handlers)


def answers(url: str) -> bool:
    """Whether a GET of `url` is answered with 200."""
    try:
        with opener().open(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


def _parsed(body: bytes) -> Json:
    if not body:
        return {}
    try:
        document = json.loads(body)
    except ValueError:
        return {"detail": body.decode(errors="replace")[:2000]}
    return document if isinstance(document, dict) else {"results": document}
