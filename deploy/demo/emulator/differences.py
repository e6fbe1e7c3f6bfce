"""Where the emulator is knowingly not like a real API server. Each entry has a test that shows it, so that whoever
mends one takes it off this list: tests/demo/emulator/test_differences.py. Those of controllers and kubelets are in
``controllers.differences``.

    python -m deploy.demo.emulator --differences
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """What a real server does and what is done here."""

    name: str
    there: str
    here: str


DIFFERENCES = (
    Difference(
        "versions-of-lists",
        "A list or watch can ask for an older or a not yet reached resourceVersion.",
        "A list is always of now, and a version that nothing has reached yet is not waited for.",
    ),
    Difference(
        "history",
        "Versions are kept for about five minutes.",
        "The last 5,000 changes of each kind are kept, page tokens for five minutes.",
    ),
    Difference(
        "formats",
        "Answers as Protobuf or CBOR, as a Table for kubectl, and compressed.",
        "Plain JSON, always; kubectl falls back to it.",
    ),
    Difference(
        "openapi",
        "OpenAPI v2 and v3 of every kind.",
        "OpenAPI v3 of custom kinds only; those of this package know pod templates in part.",
    ),
    Difference(
        "unknown-fields",
        "Fields that a kind does not have are dropped, or refused with fieldValidation=Strict.",
        "Custom kinds drop them where their schema is closed; built-in kinds keep them, and nothing is ever Strict.",
    ),
    Difference(
        "conversion",
        "Versions of one kind may differ and are converted.",
        "All versions of a kind are the same document under another apiVersion.",
    ),
    Difference(
        "webhooks",
        "Webhook configurations are called.",
        "They are stored and not called; those of the LeaderWorkerSet manager are played by this package.",
    ),
    Difference(
        "warnings",
        "A binding with Warn or Audit adds a warning header or an audit annotation.",
        "Such a binding does nothing. There is no audit log.",
    ),
    Difference(
        "cel",
        "CEL with Kubernetes' libraries (quantities, URLs, optionals, sets), type-checked when a policy is made.",
        "CEL without them; a wrong type shows when the expression is evaluated.",
    ),
    Difference(
        "impersonation",
        "Impersonate-User and Impersonate-Group, for those who may.",
        "The headers are ignored: everybody acts as the owner of the token.",
    ),
    Difference(
        "aggregated-roles",
        "ClusterRoles with an aggregationRule are filled; view, edit and admin are shipped.",
        "aggregationRule is stored and not followed, and those three do not exist.",
    ),
    Difference(
        "fairness",
        "Too many calls at once are answered with 429.",
        "429 comes from a fault that somebody asked for, never by itself.",
    ),
    Difference(
        "quotas",
        "Quotas of all kinds, with status.used; LimitRanges and PriorityClasses take part in admission.",
        "Pods are counted against quotas when they are made; used is not written, the others are only stored.",
    ),
    Difference(
        "service-account-tokens",
        "Pods get a projected volume with their account's token.",
        "They do not; tokens exist for those who ask for one.",
    ),
    Difference(
        "pod-subresources",
        "exec, attach, portforward, proxy, and resizing.",
        "log, binding and eviction; an eviction does not ask for disruption budgets.",
    ),
    Difference(
        "service-addresses",
        "A Service's address is its own, and EndpointSlices follow its pods.",
        "The address is made of its UID, and nobody writes EndpointSlices.",
    ),
)


def written(found: Iterable[Difference] = DIFFERENCES) -> str:
    """The list for people."""
    return "\n".join(f"{each.name}\n  real: {each.there}\n  here: {each.here}" for each in found)
