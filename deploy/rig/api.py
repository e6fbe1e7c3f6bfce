"""A small client of the rig's API server: dicts in, dicts out, every call with a time limit."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import urllib3
import yaml

Doc = dict[str, Any]
T = TypeVar("T")

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"


class ApiError(RuntimeError):
    """An answer other than 2xx: HTTP ``status``, the ``reason`` and ``message`` of the Status object."""

    def __init__(self, status: int, reason: str, message: str, body: Doc) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.body = body


class Api:
    """One identity's view of one API server, made from a kubeconfig file; usable from several threads."""

    def __init__(self, kubeconfig: Path, *, timeout_s: float = 20.0) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        self._server: str = cluster["server"]
        self._timeout = timeout_s
        self._plurals: dict[str, tuple[str, bool]] = {}
        self._pool = urllib3.PoolManager(
            maxsize=8,
            retries=False,
            headers={"Authorization": f"Bearer {config['users'][0]['user']['token']}"},
            ca_cert_data=base64.b64decode(cluster["certificate-authority-data"]).decode(),
        )

    def request(
        self,
        method: str,
        path: str,
        body: Doc | list[Any] | None = None,
        *,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Doc:
        """One call; ``path`` begins with /api or /apis. A 429 is asked again until ``timeout_s`` has passed.

        Raises ApiError, or HTTPError of urllib3 when nothing answers.
        """
        url = self._server + path + ("?" + urlencode(query) if query else "")
        end = time.monotonic() + self._timeout
        while True:
            answer = self._pool.request(
                method,
                url,
                body=None if body is None else json.dumps(body).encode(),
                headers={**self._pool.headers, "Content-Type": content_type, "Accept": "application/json"},
                timeout=self._timeout,
            )
            # A server that has just started answers so while its caches fill, also after /readyz.
            if answer.status != 429 or time.monotonic() > end:
                return _parsed(answer.status, answer.data)
            time.sleep(0.25)

    def get(self, path: str) -> Doc:
        """The object at a path; ApiError 404 when it is not there."""
        return self.request("GET", path)

    def items(self, path: str, *, selector: str = "") -> list[Doc]:
        """All objects of a collection, optionally by label selector."""
        found = self.request("GET", path, query={"labelSelector": selector} if selector else None)
        items: list[Doc] = found["items"]
        return items

    def watch(self, path: str, *, version: str, limit_s: float = 60.0) -> Iterator[Doc]:
        """Events of a collection since ``version``, bookmarks too, until the server ends the stream.

        Raises ApiError (410: the version is too old), or HTTPError of urllib3 when the stream breaks.
        """
        query = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(limit_s)),
        }
        answer = self._pool.request(
            "GET",
            f"{self._server}{path}?{urlencode(query)}",
            preload_content=False,
            timeout=urllib3.Timeout(connect=self._timeout, read=limit_s + self._timeout),
        )
        try:
            if answer.status != 200:
                _parsed(answer.status, answer.data)
            waiting = b""
            for chunk in answer.stream():
                *lines, waiting = (waiting + chunk).split(b"\n")
                for line in lines:
                    event: Doc = json.loads(line)
                    if event["type"] == "ERROR":
                        found = event["object"]
                        raise ApiError(
                            found.get("code", 0), found.get("reason", ""), found.get("message", ""), found
                        )
                    yield event
        finally:
            answer.close()

    def create(self, doc: Doc) -> Doc:
        """POST one document; ApiError 409 when it exists."""
        return self.request("POST", self.collection(doc), doc)

    def apply(
        self, docs: str | Doc | Iterable[Doc], *, manager: str = "rig", force: bool = True
    ) -> list[Doc]:
        """Server-side apply of YAML text, one document or several; returns the stored objects in order."""
        applied = []
        for doc in documents(docs):
            query = {"fieldManager": manager, "force": "true" if force else "false"}
            applied.append(self.request("PATCH", self.path(doc), doc, content_type=APPLY, query=query))
        return applied

    def patch(self, path: str, body: Doc | list[Any], *, content_type: str = MERGE) -> Doc:
        """PATCH with a merge patch unless another content type is named."""
        return self.request("PATCH", path, body, content_type=content_type)

    def replace(self, doc: Doc) -> Doc:
        """PUT a whole document; with a resourceVersion in it, ApiError 409 when somebody was faster."""
        return self.request("PUT", self.path(doc), doc)

    def delete(self, path: str) -> Doc:
        """DELETE in the background."""
        return self.request("DELETE", path, {"propagationPolicy": "Background"})

    def collection(self, doc: Doc) -> str:
        """The URL path of the collection that a document belongs to."""
        version, kind = doc["apiVersion"], doc["kind"]
        plural, namespaced = self._plural(version, kind)
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if namespaced:
            return f"{base}/namespaces/{doc['metadata'].get('namespace', 'default')}/{plural}"
        return f"{base}/{plural}"

    def path(self, doc: Doc) -> str:
        """The URL path of a document that has a name."""
        return f"{self.collection(doc)}/{doc['metadata']['name']}"

    def _plural(self, version: str, kind: str) -> tuple[str, bool]:
        key = f"{version}/{kind}"
        if key not in self._plurals:
            found = self.get(f"/apis/{version}" if "/" in version else f"/api/{version}")
            for entry in found["resources"]:
                if "/" not in entry["name"]:
                    self._plurals[f"{version}/{entry['kind']}"] = (entry["name"], entry["namespaced"])
        if key not in self._plurals:
            raise ApiError(404, "NotFound", f"the server knows no {kind} in {version}", {})
        return self._plurals[key]


def _parsed(status: int, data: bytes) -> Doc:
    try:
        parsed: Doc = json.loads(data)
    except ValueError:
        parsed = {"message": data.decode(errors="replace")}
    if not 200 <= status < 300:
        raise ApiError(status, parsed.get("reason", ""), parsed.get("message", ""), parsed)
    return parsed


def documents(docs: str | Doc | Iterable[Doc]) -> list[Doc]:
    """YAML text, one document or several as a list of documents."""
    if isinstance(docs, str):
        return [doc for doc in yaml.safe_load_all(docs) if doc]
    if isinstance(docs, Mapping):
        return [dict(docs)]
    return list(docs)


def until(what: str, look: Callable[[], T], *, limit_s: float = 30.0, every_s: float = 0.1) -> T:
    """The first true result of ``look()``; TimeoutError with the last result after ``limit_s`` seconds."""
    end = time.monotonic() + limit_s
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > end:
            raise TimeoutError(f"not seen within {limit_s:.0f} s: {what} (last: {seen!r})")
        time.sleep(every_s)
