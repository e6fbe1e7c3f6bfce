"""The writes of HTTP, as calls of the store: which body means what, and what is answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deploy.demo.emulator import patches
from deploy.demo.emulator.address import Address
from deploy.demo.emulator.frozen import freeze
from deploy.demo.emulator.kinds import Kind
from deploy.demo.emulator.ownership import apply
from deploy.demo.emulator.problems import ApiProblem, bad_request, invalid, not_found
from deploy.demo.emulator.requests import User
from deploy.demo.emulator.scale import scale_of
from deploy.demo.emulator.selectors import field_match, label_match
from deploy.demo.emulator.store import Store
from deploy.demo.emulator.writes import stamp

Doc = dict[str, Any]
# Deleting one of these answers with the object rather than with a Status.
_DELETED_IS_ANSWERED = frozenset(
    {"pods", "services", "serviceaccounts", "resourcequotas", "persistentvolumes"}
)


class Verbs:
    """Verbs of one store, as one request asks for them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, address: Address) -> Doc:
        """One object, or its Scale."""
        assert address.kind is not None
        found = self._store.find(address.kind, address.namespace, address.name)
        if found is None:
            raise not_found(address.kind, address.name)
        return scale_of(address.kind, found) if address.subresource == "scale" else found

    def write(
        self, address: Address, user: User, body: Any, query: Mapping[str, str], content_type: str, agent: str
    ) -> tuple[int, Doc]:
        """Carry a write out; the HTTP status and the document of the answer."""
        kind = address.kind
        assert kind is not None
        options = body if address.verb in ("delete", "deletecollection") else {}
        dry_run = _dry_run(query, options)
        manager = query.get("fieldManager") or agent
        if address.verb in ("delete", "deletecollection"):
            return 200, self._delete(address, kind, user, query, body, dry_run)
        if address.verb == "patch":
            return self._patch(address, kind, user, body, query, content_type, manager, dry_run)
        doc = _meant(kind, address, body)
        if address.verb == "create":
            return 201, self._store.writes.create(kind, doc, user, manager=manager, dry_run=dry_run)
        return 200, self._store.writes.update(
            kind,
            address.namespace,
            address.name,
            lambda _: doc,
            user,
            manager=manager,
            subresource=address.subresource,
            dry_run=dry_run,
        )

    def _patch(
        self,
        address: Address,
        kind: Kind,
        user: User,
        body: Any,
        query: Mapping[str, str],
        content_type: str,
        manager: str,
        dry_run: bool,
    ) -> tuple[int, Doc]:
        where = (kind, address.namespace, address.name)
        if content_type == patches.APPLY:
            return self._apply(address, kind, user, body, query, dry_run)
        if content_type == patches.STRATEGIC and kind.custom:
            accepted = f"{patches.JSON_PATCH}, {patches.MERGE}, {patches.APPLY}"
            why = (
                f"the body of the request was in an unknown format - accepted media types include: {accepted}"
            )
            raise ApiProblem(415, "UnsupportedMediaType", why, {})
        function = {
            patches.MERGE: patches.merge_patch,
            patches.JSON_PATCH: patches.json_patch,
            patches.STRATEGIC: patches.strategic_patch,
        }[content_type]
        return 200, self._store.writes.update(
            *where,
            lambda old: function(old, body),
            user,
            manager=manager,
            subresource=address.subresource,
            dry_run=dry_run,
        )

    def _apply(
        self, address: Address, kind: Kind, user: User, body: Any, query: Mapping[str, str], dry_run: bool
    ) -> tuple[int, Doc]:
        if not query.get("fieldManager"):
            raise bad_request(
                'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
            )
        wanted = _meant(kind, address, body)
        if wanted["metadata"].get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        settings: Doc = {
            "manager": query["fieldManager"],
            "force": query.get("force") == "true",
            "subresource": address.subresource,
            "time": stamp(self._store.clock()),
        }
        store = self._store
        options: Doc = {"manager": query["fieldManager"], "dry_run": dry_run, "managed": False}
        if store.find(kind, address.namespace, address.name) is None:
            if address.subresource:
                raise not_found(kind, address.name)
            made = apply(kind, None, wanted, **settings)
            return 201, store.writes.create(kind, made, user, **options)
        return 200, store.writes.update(
            kind,
            address.namespace,
            address.name,
            lambda old: apply(kind, old, wanted, **settings),
            user,
            subresource=address.subresource,
            **options,
        )

    def _delete(
        self, address: Address, kind: Kind, user: User, query: Mapping[str, str], options: Doc, dry_run: bool
    ) -> Doc:
        conditions = options.get("preconditions") or {}
        grace = options.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
        settings: Doc = {
            "propagation": options.get("propagationPolicy") or query.get("propagationPolicy") or "",
            "uid": conditions.get("uid") or "",
            "version": conditions.get("resourceVersion") or "",
            "grace_s": None if grace is None else int(grace),
            "dry_run": dry_run,
        }
        if address.verb == "delete":
            last, gone = self._store.writes.delete(kind, address.namespace, address.name, user, **settings)
            return _deleted(kind, last) if gone and kind.ref not in _DELETED_IS_ANSWERED else last
        labels = label_match(query.get("labelSelector", ""))
        fields = field_match(kind, query.get("fieldSelector", ""))
        found = self._store.memory.all(kind, address.namespace)
        for doc in [each for each in found if labels(each) and fields(each)]:
            metadata = doc["metadata"]
            self._store.writes.delete(kind, metadata.get("namespace", ""), metadata["name"], user, **settings)
        return _success()


def _meant(kind: Kind, address: Address, body: Any) -> Doc:
    """The document of a body, with what the path says filled in. Raises ApiProblem 400 where they differ."""
    if not isinstance(body, dict):
        raise bad_request(f"cannot unmarshal {type(body).__name__} into Go value of type {kind.kind}")
    versions = {f"{kind.group}/{each}" if kind.group else each for each in kind.versions}
    scale = address.subresource == "scale"
    if not scale:
        if (
            body.get("kind", kind.kind) != kind.kind
            or body.get("apiVersion", kind.api_version) not in versions
        ):
            named = f"{body.get('apiVersion')}, Kind={body.get('kind')}"
            raise bad_request(
                f"{named} in the body does not match the expected {kind.api_version}, Kind={kind.kind}"
            )
    metadata = dict(body.get("metadata") or {})
    if kind.namespaced and address.namespace and not scale:
        if metadata.setdefault("namespace", address.namespace) != address.namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
    if address.name:
        if address.verb == "update" and not metadata.get("name") and not scale:
            why = "Required value: name must be provided"
            raise invalid(kind, "", [("metadata.name", "FieldValueRequired", why)])
        metadata.setdefault("name", address.name)
    if scale:
        return {**body, "metadata": metadata}
    return {"apiVersion": kind.api_version, "kind": kind.kind, **body, "metadata": metadata}


def _dry_run(query: Mapping[str, str], options: Doc) -> bool:
    asked = query.get("dryRun") or (options.get("dryRun") or [""])[0]
    if asked not in ("", "All"):
        raise bad_request(f'dryRun: Unsupported value: "{asked}": supported values: "All"')
    return asked == "All"


def _success() -> Doc:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 200}


def _deleted(kind: Kind, last: Doc) -> Doc:
    details = {"name": last["metadata"]["name"], "kind": kind.plural, "uid": last["metadata"]["uid"]}
    if kind.group:
        details["group"] = kind.group
    return freeze({**_success(), "details": details})  # type: ignore[no-any-return]
