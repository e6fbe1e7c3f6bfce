"""`Kube`: dict-level verbs against one cluster. Dicts in, dicts out; typed models would drop unknown fields.

Every call has a timeout and is made exactly once. Writes are guarded by what was read: `replace` and `delete`
refuse to go out without a resourceVersion, `patch` carries one or says None aloud.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from kubernetes.client import Configuration

from controlplane.kube.errors import Expired, KubeError, ObjectMissing, from_status
from controlplane.kube.resources import Resource
from controlplane.kube.transport import MERGE_PATCH, Stream, Transport, load_configuration, make_configuration

Json = dict[str, Any]
FIELD_MANAGER = "lockstep"
PAGE = 500
_LIST_ATTEMPTS = 3


class CallHook(Protocol):
    """Told `before` a request goes out and `after` it was answered (whatever the answer). `verb` is get,
    list, create, replace, patch or delete; a server dry run has the prefix `dry-run `."""

    def __call__(self, phase: str, verb: str, resource: Resource, name: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects of a list, and the resourceVersion that a watch goes on from."""

    items: list[Json]
    resource_version: str


class Kube:
    """One cluster. Thread-safe. `unanswered` becomes True when a write was sent and its effect is unknown;
    it stays so until the owner, having looked at the cluster, sets it to False."""

    def __init__(
        self, configuration: Configuration, *, timeout: float, on_call: CallHook | None = None
    ) -> None:
        self._transport = Transport(configuration)
        self.timeout = timeout
        self.on_call = on_call
        self.unanswered = False

    @classmethod
    def from_kubeconfig(
        cls, path: str, *, context: str, timeout: float, on_call: CallHook | None = None
    ) -> Kube:
        """A client for one context of a kubeconfig file. `timeout` in seconds bounds each call."""
        return cls(load_configuration(kubeconfig=path, context=context), timeout=timeout, on_call=on_call)

    @classmethod
    def for_server(
        cls,
        server: str,
        *,
        timeout: float,
        token: str = "",
        ca_file: str = "",
        verify: bool = True,
        on_call: CallHook | None = None,
    ) -> Kube:
        """A client for a server address with a bearer token."""
        configuration = make_configuration(server=server, token=token, ca_file=ca_file, verify=verify)
        return cls(configuration, timeout=timeout, on_call=on_call)

    def fresh(self) -> Kube:
        """The same cluster over new connections, with the same timeout and hook. Close it after use."""
        return Kube(self._transport.configuration, timeout=self.timeout, on_call=self.on_call)

    def close(self) -> None:
        """Close every connection."""
        self._transport.close()

    def __enter__(self) -> Kube:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # Reads

    def get(
        self, resource: Resource, name: str, namespace: str | None = None, *, subresource: str = ""
    ) -> Json:
        """One object, read from the API server's store and not from a cache. Raises ObjectMissing."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return self._call("GET", path, "get", resource, name)

    def find(self, resource: Resource, name: str, namespace: str | None = None) -> Json | None:
        """Like `get`; None where there is no such object (or no such kind)."""
        try:
            return self.get(resource, name, namespace)
        except ObjectMissing:
            return None

    def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        page: int = PAGE,
        each: Callable[[Json], Json] | None = None,
    ) -> Listing:
        """All objects (of one namespace, or of all). Read in pages of `page`; each page has its own timeout.

        `each` maps every object as its page arrives, so that a large list need not be held whole. Starts
        over, twice at most, when the page token expires on the way.
        """
        for attempt in range(_LIST_ATTEMPTS):
            try:
                return self._list_once(resource, namespace, label_selector, field_selector, page, each)
            except Expired:
                if attempt == _LIST_ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def _list_once(
        self,
        resource: Resource,
        namespace: str | None,
        label_selector: str,
        field_selector: str,
        page: int,
        each: Callable[[Json], Json] | None,
    ) -> Listing:
        query = _selectors(label_selector, field_selector) | {"limit": page}
        items: list[Json] = []
        while True:
            answer = self._call("GET", resource.path(namespace=namespace), "list", resource, "", query=query)
            for item in answer.get("items") or ():
                # The API server leaves these out of the items of a list.
                item.setdefault("apiVersion", resource.api_version)
                item.setdefault("kind", resource.kind)
                items.append(each(item) if each else item)
            metadata = answer.get("metadata") or {}
            if not metadata.get("continue"):
                return Listing(items, str(metadata.get("resourceVersion") or ""))
            query["continue"] = metadata["continue"]

    def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        server_timeout: int = 290,
        read_timeout: float = 300,
    ) -> Watch:
        """Changes after `resource_version`, with bookmarks. The server ends the watch after
        `server_timeout` s; silence of `read_timeout` s breaks it from this side. Raises Expired when the
        version is too old."""
        query = _selectors(label_selector, field_selector) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": server_timeout,
        }
        stream = self._transport.stream(
            resource.path(namespace=namespace),
            timeout=self.timeout,
            read_timeout=read_timeout,
            query=query,
            verb="watch",
        )
        return Watch(stream, target=resource.plural)

    def server_version(self) -> Json:
        """The `/version` document: `gitVersion`, `major`, `minor`, …"""
        return self._transport.call("GET", "/version", timeout=self.timeout, verb="version")

    def find_api(self, group: str) -> bool:
        """Whether the server serves an API group."""
        try:
            self._transport.call("GET", f"/apis/{group}", timeout=self.timeout, verb="find")
        except ObjectMissing:
            return False
        return True

    def find_schema(self, resource: Resource) -> Json | None:
        """The OpenAPI v3 schema that the server publishes for a kind; None where there is none (yet: it
        appears some seconds after its CRD)."""
        path = (
            f"/openapi/v3/apis/{resource.api_version}"
            if resource.group
            else f"/openapi/v3/api/{resource.version}"
        )
        try:
            document = self._transport.call("GET", path, timeout=self.timeout, verb="schema")
        except ObjectMissing:
            return None
        wanted = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        schemas: Json = (document.get("components") or {}).get("schemas") or {}
        for schema in schemas.values():
            if wanted in (schema.get("x-kubernetes-group-version-kind") or ()):
                found: Json = schema
                return found
        return None

    # Writes

    def create(
        self, resource: Resource, body: Json, namespace: str | None = None, *, dry_run: bool = False
    ) -> Json:
        """Create an object; returns it as stored. Raises AlreadyExists. `namespace` defaults to the
        body's."""
        metadata = body.get("metadata") or {}
        path = resource.path(namespace=namespace or metadata.get("namespace"))
        name = str(metadata.get("name") or metadata.get("generateName") or "")
        return self._write("POST", path, "create", resource, name, body=body, dry_run=dry_run)

    def replace(
        self, resource: Resource, body: Json, *, dry_run: bool = False, subresource: str = ""
    ) -> Json:
        """Replace an object by `body`, which must carry the resourceVersion that was read (ValueError
        otherwise).

        Raises Conflict when the object has changed since. A body with a UID is refused for another
        incarnation."""
        metadata = body["metadata"]
        if not metadata.get("resourceVersion"):
            raise ValueError(
                "replace needs metadata.resourceVersion: it would overwrite what nobody has read"
            )
        path = resource.path(
            namespace=metadata.get("namespace"), name=metadata["name"], subresource=subresource
        )
        return self._write("PUT", path, "replace", resource, metadata["name"], body=body, dry_run=dry_run)

    def patch(
        self,
        resource: Resource,
        name: str,
        namespace: str | None,
        body: Json,
        *,
        resource_version: str | None,
        dry_run: bool = False,
        subresource: str = "",
    ) -> Json:
        """JSON merge patch (RFC 7386: null deletes, lists are replaced). With `resource_version` it is
        applied only to the object that was read (Conflict otherwise); None says that any state will do."""
        if resource_version is not None:
            metadata = dict(body.get("metadata") or {}) | {"resourceVersion": resource_version}
            body = body | {"metadata": metadata}
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return self._write(
            "PATCH", path, "patch", resource, name, body=body, dry_run=dry_run, content_type=MERGE_PATCH
        )

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None,
        *,
        uid: str,
        resource_version: str | None,
        dry_run: bool = False,
    ) -> Json:
        """Delete exactly the object that was read: UID always, resourceVersion unless None. Dependents are
        collected in the background. Raises Conflict for any other object, ObjectMissing when it is gone."""
        preconditions = {"uid": uid} | ({"resourceVersion": resource_version} if resource_version else {})
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": preconditions,
            "propagationPolicy": "Background",
        }
        path = resource.path(namespace=namespace, name=name)
        return self._write("DELETE", path, "delete", resource, name, body=body, dry_run=dry_run)

    def _write(
        self,
        method: str,
        path: str,
        verb: str,
        resource: Resource,
        name: str,
        *,
        body: Json,
        dry_run: bool,
        content_type: str = "application/json",
    ) -> Json:
        query: Json = {} if method == "DELETE" else {"fieldManager": FIELD_MANAGER}
        if dry_run:
            query["dryRun"] = "All"
            verb = f"dry-run {verb}"
        try:
            return self._call(
                method,
                path,
                verb,
                resource,
                name,
                query=query,
                body=body,
                content_type=content_type,
                dry_run=dry_run,
            )
        except KubeError as error:
            self.unanswered = self.unanswered or error.unanswered
            raise

    def _call(
        self,
        method: str,
        path: str,
        verb: str,
        resource: Resource,
        name: str,
        *,
        query: Json | None = None,
        body: Json | None = None,
        content_type: str = "application/json",
        dry_run: bool = False,
    ) -> Json:
        if self.on_call:
            self.on_call("before", verb, resource, name)
        try:
            answer = self._transport.call(
                method,
                path,
                timeout=self.timeout,
                query=query,
                body=body,
                content_type=content_type,
                verb=verb,
                dry_run=dry_run,
            )
        except KubeError as error:
            if self.on_call and error.status:
                self.on_call("after", verb, resource, name)
            raise
        if self.on_call:
            self.on_call("after", verb, resource, name)
        return answer


class Watch:
    """An open watch: iterate over `(type, object)` with type ADDED, MODIFIED, DELETED or BOOKMARK.

    The iteration ends when the server closes the watch. An ERROR event is raised as the KubeError it stands
    for (Expired when the version is too old). Any thread may close it."""

    def __init__(self, stream: Stream, *, target: str) -> None:
        self._stream = stream
        self._target = target

    def __iter__(self) -> Iterator[tuple[str, Json]]:
        for line in self._stream:
            try:
                event = json.loads(line)
                kind, item = event["type"], event["object"]
            except (ValueError, KeyError, TypeError) as error:
                raise KubeError(
                    f"not a watch event: {line[:200]!r}", verb="watch", target=self._target
                ) from error
            if kind == "ERROR":
                code = int(item.get("code") or 500)
                raise from_status(item, status=code, verb="watch", target=self._target)
            yield kind, item

    def close(self) -> None:
        """End the iteration, also while it waits for the next event."""
        self._stream.close()


def _selectors(label_selector: str, field_selector: str) -> Json:
    query: Json = {}
    if label_selector:
        query["labelSelector"] = label_selector
    if field_selector:
        query["fieldSelector"] = field_selector
    return query
