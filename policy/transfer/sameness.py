"""What two engines have in common as a whole: build, GPU, weights, connector, or everything.

Settings that are left to the engine are equal where all is equal that the engine's choice depends on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from policy.transfer import readings
from policy.transfer.arguments import EngineArguments
from policy.transfer.command import parse_image
from policy.transfer.connectors import FLAG, ROLE_KEYS, read_connectors
from policy.transfer.factors import VERSION, WEIGHTS, base_of
from policy.transfer.facts import EngineFacts
from policy.transfer.findings import MissingFact, State
from policy.transfer.flags import INDIFFERENT_FLAGS, INDIFFERENT_VARIABLES, is_kept
from policy.transfer.values import ANY_VARIABLE, EVERYTHING, JsonValue, Side

_COMMIT = re.compile(r"[0-9a-f]{40}")
SIDES: tuple[Side, Side] = ("prefill", "decode")


@dataclass(frozen=True, slots=True)
class Sameness:
    """States of what choices depend on, by the names of `readings`; what would have to be known for each."""

    states: Mapping[str, State]
    missing: Mapping[str, tuple[MissingFact, ...]]
    identical: bool = False
    rests_on: tuple[str, ...] = ()


def compare_engines(prefill: EngineFacts, decode: EngineFacts) -> Sameness:
    """Compares two engines as wholes."""
    pair = (prefill, decode)
    states: dict[str, State] = {
        readings.BUILD: _build(prefill, decode),
        readings.GPU: _known_equal(prefill.gpu_product, decode.gpu_product),
        readings.WEIGHTS: _weights(prefill, decode),
        readings.CONNECTOR: _connector(prefill, decode),
        readings.CACHE: _cache(prefill, decode),
        readings.VARIABLES: _variables(prefill.arguments, decode.arguments),
    }
    missing = {
        readings.BUILD: _absent(
            pair, VERSION, "the exact version of the engine", "GET /version", _has_version
        ),
        readings.GPU: _absent(pair, "gpu", "the GPU product", "node label nvidia.com/gpu.product", _has_gpu),
        readings.WEIGHTS: _absent(
            pair, WEIGHTS, "the commit or digest of the weights", "a pinned --revision", _has_weights
        ),
    }
    rests_on = _identity(prefill, decode, states)
    return Sameness(states, missing, bool(rests_on), rests_on)


def _absent(
    pair: tuple[EngineFacts, EngineFacts],
    factor: str,
    fact: str,
    where: str,
    has: Callable[[EngineFacts], bool],
) -> tuple[MissingFact, ...]:
    sides = zip(SIDES, pair, strict=True)
    return tuple(MissingFact(side, factor, fact, where) for side, facts in sides if not has(facts))


def _has_version(facts: EngineFacts) -> bool:
    return facts.live.version is not None


def _has_gpu(facts: EngineFacts) -> bool:
    return facts.gpu_product is not None


def _has_weights(facts: EngineFacts) -> bool:
    return facts.model_artifact is not None or _pinned(facts) is not None


def _known_equal(one: object, other: object) -> State:
    if one is None or other is None:
        return "unknown"
    return "equal" if one == other else "different"


def _build(prefill: EngineFacts, decode: EngineFacts) -> State:
    """Equal by image digest or exact version; different by exact version or by what two tags name."""
    asked = _known_equal(prefill.live.version, decode.live.version)
    if asked != "unknown":
        return asked
    if prefill.digest is not None and prefill.digest == decode.digest:
        return "equal"
    named = [_named_version(facts) for facts in (prefill, decode)]
    return "different" if _known_equal(*named) == "different" else "unknown"


def _named_version(facts: EngineFacts) -> str | None:
    tagged = readings.tagged_version(facts)
    return base_of(facts.live.version) or (str(tagged.value) if tagged is not None else None)


def _pinned(facts: EngineFacts) -> str | None:
    """The commit that `--revision` names; a branch or a tag can move, and a path has no revision."""
    revision = facts.arguments.value("revision")
    if facts.arguments.hidden("revision") is not None or _is_path(readings.model(facts).value):
        return None
    return revision if isinstance(revision, str) and _COMMIT.fullmatch(revision) else None


def _is_path(model: JsonValue) -> bool:
    return isinstance(model, str) and model.startswith(("/", "./", "~"))


def _weights(prefill: EngineFacts, decode: EngineFacts) -> State:
    loaded = _known_equal(prefill.model_artifact, decode.model_artifact)
    if loaded != "unknown":
        return loaded
    names = [readings.model(facts) for facts in (prefill, decode)]
    if not all(each.known for each in names) or any(_is_path(each.value) for each in names):
        return "unknown"
    if names[0].value != names[1].value:
        return "different"
    given = [facts.arguments.value("revision") for facts in (prefill, decode)]
    if None not in given and given[0] != given[1]:
        return "different"
    return _known_equal(_pinned(prefill), _pinned(decode))


def _connector(prefill: EngineFacts, decode: EngineFacts) -> State:
    sides = [read_connectors(facts.arguments) for facts in (prefill, decode)]
    if any(each.hidden is not None for each in sides):
        return "unknown"
    named = [(each.transfer.name, each.transfer.wrapped) if each.transfer else None for each in sides]
    return "equal" if named[0] == named[1] else "different"


def _cache(prefill: EngineFacts, decode: EngineFacts) -> State:
    one, other = readings.cache_dtype(prefill), readings.cache_dtype(decode)
    if one.known and other.known:
        return "equal" if one.value == other.value else "different"
    return "equal" if one.depends is not None and one.depends == other.depends else "unknown"


def _identity(prefill: EngineFacts, decode: EngineFacts, states: Mapping[str, State]) -> tuple[str, ...]:
    """What a verdict by identity rests on; empty where the two are not the same."""
    digest = prefill.digest
    if digest is None or digest != decode.digest or states[readings.BUILD] == "different":
        return ()
    if states[readings.GPU] != "equal" or states[readings.WEIGHTS] == "different":
        return ()
    if not _same_settings(prefill, decode):
        return ()
    said = [
        f"both run the image {digest}",
        _settings_sentence(prefill.arguments),
        f"both run on {prefill.gpu_product}",
    ]
    name = readings.model(prefill)
    if states[readings.WEIGHTS] == "equal":
        said.append("both load the same weights")
    else:
        what = f"the model {name.value}" if name.known else "a model that cannot be read"
        said.append(f"both name {what}, which is not pinned: pods of another day may hold other weights")
    named = sorted({each.reason for each in prefill.arguments.opaque if each.covers == ANY_VARIABLE})
    said.extend(f"{reason}: the same source for both, as long as nobody changes it" for reason in named)
    return tuple(said)


def _settings_sentence(arguments: EngineArguments) -> str:
    if any(each.covers == EVERYTHING and each.path is None for each in arguments.opaque):
        return "both are started by the same text, which is not read"
    return "both have the same arguments, apart from addresses and roles"


def _same_settings(prefill: EngineFacts, decode: EngineFacts) -> bool:
    one, other = prefill.arguments, decode.arguments
    if (one.kind, one.launcher) != (other.kind, other.launcher) or settings(one) != settings(other):
        return False
    if not _same_hidden(prefill, decode):
        return False
    return variables(one) == variables(other)


def settings(arguments: EngineArguments) -> dict[str, JsonValue]:
    """The flags that concern the KV, without what differs by role or pod."""
    kept = {name: each.value for name, each in arguments.flags.items() if name not in INDIFFERENT_FLAGS}
    if FLAG in kept:
        kept[FLAG] = without_role(kept[FLAG])
    return kept


def without_role(value: JsonValue) -> JsonValue:
    """A connector's settings without the keys that name a role or an address, at any depth."""
    if isinstance(value, dict):
        return {key: without_role(item) for key, item in value.items() if key not in ROLE_KEYS}
    return [without_role(item) for item in value] if isinstance(value, list) else value


def variables(arguments: EngineArguments) -> dict[str, JsonValue]:
    """The kept variables without the pod's own address."""
    return {name: each.value for name, each in arguments.env.items() if name not in INDIFFERENT_VARIABLES}


def _variables(one: EngineArguments, other: EngineArguments) -> State:
    """Whether the engines' own variables are the same, as far as they are seen."""
    if variables(one) != variables(other):
        return "different"
    hidden = [
        {each for each in side.opaque if is_kept(each.covers) or each.covers == ANY_VARIABLE}
        for side in (one, other)
    ]
    return "equal" if hidden[0] == hidden[1] and all(each.fixed for each in hidden[0]) else "unknown"


def _same_hidden(prefill: EngineFacts, decode: EngineFacts) -> bool:
    """Unread settings are the same where their text, their files or their named sources are."""
    one, other = prefill.arguments, decode.arguments
    hidden = [
        {(each.covers, each.reason, each.path, each.fixed) for each in side.opaque} for side in (one, other)
    ]
    if hidden[0] != hidden[1]:
        return False
    unread = False
    for covers, _, path, fixed in hidden[0]:
        contents = prefill.file_digests.get(path or ""), decode.file_digests.get(path or "")
        if not fixed and (contents[0] is None or contents[0] != contents[1]):
            return False
        unread = unread or (covers == EVERYTHING and path is None)
    return not unread or (one.raw, one.raw_env) == (other.raw, other.raw_env)


def tag_of(facts: EngineFacts) -> tuple[str, str] | None:
    """Repository and tag that the pod spec names without a digest, which may mean other bits tomorrow."""
    repository, tag, digest = parse_image(facts.arguments.image)
    return (repository, tag or "latest") if repository and digest is None else None
