"""What the engines of a revision are, from the templates of its roles: facts for the transfer verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from policy.transfer.arguments import engine_container, read_container
from policy.transfer.facts import EngineFacts, RevisionFacts
from policy.transfer.readings import tagged_version

Json = dict[str, Any]
ROUTER_ROLE = "llm-d.ai/role"
_PREFILL = {"prefill", "encode-prefill"}
_DECODE = {"decode"}


def revision_facts(
    name: str, roles: Iterable[Mapping[str, Any]], *, image_ids: Mapping[str, Sequence[str]] | None = None
) -> RevisionFacts:
    """The two sides of a revision. `image_ids` maps role names to the image IDs that its pods run, where there are
    pods. A role's side is what its pods are labelled for the router, else its name."""
    sides: dict[str, EngineFacts] = {}
    for role in roles:
        side = side_of(role)
        facts = engine_facts(role, (image_ids or {}).get(str(role["name"]), ()))
        if side and facts is not None:
            sides[side] = facts
    return RevisionFacts(name, prefill=sides.get("prefill"), decode=sides.get("decode"))


def side_of(role: Mapping[str, Any]) -> str:
    """`prefill`, `decode`, or "" for a role that is neither or both."""
    template = _leader(role)
    labelled = ((template.get("metadata") or {}).get("labels") or {}).get(ROUTER_ROLE)
    named = str(labelled or role.get("name") or "")
    return "prefill" if named in _PREFILL else "decode" if named in _DECODE else ""


def engine_of(role: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The container of a role that is its engine; None where none looks like one."""
    pod_spec = _leader(role).get("spec") or {}
    name = engine_container(pod_spec)
    return next((each for each in pod_spec.get("containers") or () if each.get("name") == name), None)


def engine_facts(role: Mapping[str, Any], image_ids: Sequence[str]) -> EngineFacts | None:
    """The engine of a role; None where no container of it looks like one."""
    container = engine_of(role)
    if container is None:
        return None
    return EngineFacts(arguments=read_container(container), image_digests=tuple(image_ids))


def tagged_version_of(role: Mapping[str, Any]) -> str:
    """The version that the tag of the engine's own image names; "" where nothing does."""
    facts = engine_facts(role, ())
    seen = tagged_version(facts) if facts is not None else None
    return "" if seen is None else str(seen.value)


def _leader(role: Mapping[str, Any]) -> Mapping[str, Any]:
    group = (role.get("spec") or {}).get("leaderWorkerTemplate") or {}
    found: Mapping[str, Any] = group.get("leaderTemplate") or group.get("workerTemplate") or {}
    return found
