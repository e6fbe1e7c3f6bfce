"""What a kind of object is, and the register in which kinds are found by name, by path or by document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from deploy.demo.emulator.problems import no_such_path

Doc = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind of object.

    ``group`` is "" for the core API · ``version`` the one that is stored; ``also`` further ones that are served ·
    ``spec_counts`` whether a change outside metadata and status raises ``metadata.generation`` · ``status``
    whether status is written through its own subresource only · ``scale`` the field paths of replicas (spec, status,
    selector) where there is a /scale · ``blind_put`` whether PUT without a resourceVersion is taken ·
    ``created_with_status`` for kinds whose status may come with the object · ``custom`` for kinds of a CRD ·
    ``schema`` the openAPIV3Schema by version of a CRD that came with one.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    status: bool = False
    spec_counts: bool = False
    scale: tuple[str, str, str] | None = None
    blind_put: bool = True
    created_with_status: bool = False
    custom: bool = False
    also: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = (
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    )
    schema: dict[str, Doc] = field(default_factory=dict)

    @property
    def ref(self) -> str:
        """``pods``, ``deployments.apps``: how messages and this package name the kind."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        """``v1``, ``apps/v1``: what stands in documents."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def versions(self) -> tuple[str, ...]:
        """All served versions, the stored one first."""
        return (self.version, *self.also)


class Kinds:
    """All kinds that are served now."""

    def __init__(self, kinds: Iterable[Kind] = ()) -> None:
        self._by_ref: dict[str, Kind] = {}
        for kind in kinds:
            self.add(kind)

    def add(self, kind: Kind) -> None:
        """Serve a kind; one of the same name is replaced."""
        self._by_ref[kind.ref] = kind

    def remove(self, ref: str) -> None:
        """Serve it no longer."""
        self._by_ref.pop(ref, None)

    def __iter__(self) -> Iterator[Kind]:
        return iter(list(self._by_ref.values()))

    def __contains__(self, ref: str) -> bool:
        return ref in self._by_ref

    def of(self, ref: str | Kind) -> Kind:
        """A kind by its name (``pods``, ``deployments.apps``). Raises ApiProblem 404."""
        if isinstance(ref, Kind):
            return ref
        if ref not in self._by_ref:
            raise no_such_path()
        return self._by_ref[ref]

    def at(self, group: str, version: str, plural: str) -> Kind:
        """The kind at a URL path. Raises ApiProblem 404."""
        kind = self._by_ref.get(f"{plural}.{group}" if group else plural)
        if kind is None or version not in kind.versions:
            raise no_such_path()
        return kind

    def of_document(self, document: Doc) -> Kind:
        """The kind that a document says it is. Raises ApiProblem 404."""
        return self.named(str(document.get("apiVersion", "")), str(document.get("kind", "")))

    def named(self, api_version: str, name: str) -> Kind:
        """The kind by ``apiVersion`` and ``kind``. Raises ApiProblem 404."""
        group, _, version = api_version.rpartition("/")
        for kind in self._by_ref.values():
            if kind.kind == name and kind.group == group and version in kind.versions:
                return kind
        raise no_such_path()
