"""The value of each factor on one side: given, left to the engine, or not to be seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from policy.transfer import factors
from policy.transfer.command import parse_image
from policy.transfer.connectors import Connectors, read_connectors
from policy.transfer.facts import EngineFacts
from policy.transfer.findings import Shown
from policy.transfer.values import JsonValue, shown, truth, whole

# What an engine's own choice may depend on.
BUILD, GPU, WEIGHTS, CONNECTOR = "build", "gpu", "weights", "connector"
CACHE, VARIABLES = "cache", "variables"
_CHOSEN = "no flag"
_AUTO = frozenset({"auto", "none", ""})


@dataclass(frozen=True, slots=True)
class Reading:
    """A factor on one side.

    With `known` the value is certain. `depends` names what the engine's own choice depends on, where it is left
    to the engine, seen or not. Without both a value may exist that cannot be seen. `where` says how to learn it.
    """

    value: JsonValue
    source: str
    where: str
    known: bool = True
    depends: frozenset[str] | None = None

    def shown(self) -> Shown:
        """For a page: the value, or what stands in its place."""
        if self.known:
            return Shown(shown(self.value), self.source)
        return Shown("left to the engine" if self.source.startswith(_CHOSEN) else "not known", self.source)


def _given(value: JsonValue, source: str, where: str = "") -> Reading:
    return Reading(value, source, where)


def _left(facts: EngineFacts, where: str, *depends: str) -> Reading:
    engine = facts.kind if facts.kind != "unknown" else "the engine"
    return Reading(None, f"{_CHOSEN}; chosen by {engine}", where, known=False, depends=frozenset(depends))


def _unseen(reason: str, where: str) -> Reading:
    return Reading(None, reason, where, known=False)


def version(facts: EngineFacts) -> Reading:
    """The exact version as the engine says it. A tag is no proof and is not a value here."""
    where = "GET /version of a running engine"
    if facts.live.version:
        return _given(facts.live.version, "GET /version", where)
    return _unseen("not asked yet" if facts.live.engine is None else "not answered", where)


def tagged_version(facts: EngineFacts) -> Reading | None:
    """The version that a tag of the engine's own image names; what it names may still be wrong."""
    repository, tag, _ = parse_image(facts.arguments.image)
    if not repository.endswith(("vllm-openai", "lmsysorg/sglang", "/sglang")):
        return None
    base = factors.base_of(tag)
    return None if base is None else _given(base, f"image tag {tag}")


def model(facts: EngineFacts) -> Reading:
    """The model string as given: a path and a hub id of the same weights are two strings."""
    where = "GET /v1/models (root)"
    found = facts.arguments.flags.get("model")
    hidden = facts.arguments.hidden("model")
    if found is not None and hidden is None:
        return _given(found.value, found.source, where)
    if facts.live.model_root:
        return _given(facts.live.model_root, "GET /v1/models", where)
    return _unseen(hidden or "no model is named", where)


def _flag(facts: EngineFacts, name: str, where: str, *depends: str) -> Reading:
    """A flag whose absence, or `auto`, leaves the choice to the engine."""
    hidden = facts.arguments.hidden(name)
    if hidden is not None:
        return _unseen(hidden, where)
    found = facts.arguments.flags.get(name)
    if found is None or str(found.value).lower() in _AUTO:
        return _left(facts, where, *depends)
    return _given(found.value, found.source, where)


def dtype(facts: EngineFacts) -> Reading:
    """The dtype of the model. `auto` takes the one in config.json where that has 16 bits."""
    where = "config.json of the model, or --dtype"
    found = _flag(facts, "dtype", where, BUILD, WEIGHTS, GPU)
    if found.known:
        return _given(factors.dtype_name(str(found.value)), found.source, where)
    named = factors.dtype_name(facts.geometry.dtype) if facts.geometry and facts.geometry.dtype else None
    if found.depends is not None and named in ("float16", "bfloat16"):
        return Reading(named, "config.json", where, depends=found.depends)
    return found


GEOMETRY_KEYS = frozenset(
    {
        "num_key_value_heads",
        "num_attention_heads",
        "num_hidden_layers",
        "head_dim",
        "hidden_size",
        "kv_lora_rank",
    }
)


_SUMMARY_KEYS = ("num_key_value_heads", "head_dim", "num_hidden_layers")


def overrides(facts: EngineFacts) -> Mapping[str, JsonValue] | None:
    """`--hf-overrides` as an object; None where it may exist unseen."""
    if facts.arguments.hidden("hf-overrides") is not None:
        return None
    value = facts.arguments.value("hf-overrides")
    return value if isinstance(value, dict) else {}


def kv_geometry(facts: EngineFacts) -> Reading:
    """KV heads, head size and layers, from config.json where no override changes them."""
    where = "config.json of the model"
    given = overrides(facts)
    if given is None:
        return _unseen(facts.arguments.hidden("hf-overrides") or "", where)
    changed = {key: value for key, value in given.items() if key in GEOMETRY_KEYS}
    if changed:
        source = facts.arguments.flags["hf-overrides"].source
        return _given(_overridden(facts, changed) or dict(changed), source, where)
    if facts.geometry is not None:
        return Reading(facts.geometry.summary(), "config.json", where, depends=frozenset({WEIGHTS}))
    return _left(facts, where, WEIGHTS)


def _overridden(facts: EngineFacts, changed: Mapping[str, JsonValue]) -> JsonValue:
    """KV heads, head size and layers with overrides applied; None where one changes them in another way."""
    geometry = facts.geometry
    if geometry is None or geometry.is_mla or not set(changed) <= set(_SUMMARY_KEYS):
        return None
    return [changed.get(key, value) for key, value in zip(_SUMMARY_KEYS, geometry.summary(), strict=True)]


def attention_backend(facts: EngineFacts) -> Reading:
    """The backend from the log, a flag, or in old releases a variable; else chosen by the hardware."""
    where = "the engine's log at start (attention backend)"
    found = _requested_backend(facts, where)
    if facts.live.attention_backend:
        return Reading(facts.live.attention_backend.upper(), "engine log", where, depends=found.depends)
    return found


def _requested_backend(facts: EngineFacts, where: str) -> Reading:
    config = facts.arguments.value("attention-config")
    inner = config.get("backend") if isinstance(config, dict) else None
    if inner is not None and facts.arguments.hidden("attention-config") is None:
        return _given(str(inner).upper(), facts.arguments.flags["attention-config"].source, where)
    found = _flag(facts, "attention-backend", where, BUILD, WEIGHTS, GPU, CACHE, VARIABLES)
    if found.known:
        return _given(str(found.value).upper(), found.source, where)
    if found.depends is not None and facts.arguments.hidden("attention-config") is not None:
        return _unseen(facts.arguments.hidden("attention-config") or "", where)
    return found if found.depends is None else _backend_variable(facts, found, where)


def _backend_variable(facts: EngineFacts, otherwise: Reading, where: str) -> Reading:
    name = "VLLM_ATTENTION_BACKEND"
    release = factors.release_of(facts.live.version)
    if release is not None and release >= factors.BACKEND_VARIABLE_IGNORED:
        return otherwise
    hidden, given = facts.arguments.hidden(name), facts.arguments.env.get(name)
    if given is None:
        return otherwise if hidden is None else _unseen(hidden, where)
    if release is not None and release <= factors.BACKEND_VARIABLE_READ:
        return _given(str(given.value).upper(), given.source, where)
    return _unseen(f"{given.source}: whether this release reads it is not known", where)


def cache_dtype(facts: EngineFacts) -> Reading:
    """The string of the KV cache dtype. `auto` may be resolved from a quantised checkpoint."""
    where = "label cache_dtype of vllm:cache_config_info"
    live = facts.live.cache_config.get("cache_dtype")
    found = _flag(facts, "kv-cache-dtype", where, BUILD, WEIGHTS)
    return Reading(live, "vllm:cache_config_info", where, depends=found.depends) if live else found


def cross_layer(facts: EngineFacts) -> Reading:
    """Whether all layers of a block lie together; off unless the connector's extra config says so."""
    return _of_connector(facts, lambda found: found.extra.get("enable_cross_layers_blocks", False))


def _of_connector(facts: EngineFacts, read: Callable[..., JsonValue]) -> Reading:
    where = "--kv-transfer-config"
    connectors = read_connectors(facts.arguments)
    found = connectors.transfer
    if found is None or connectors.hidden is not None:
        return _unseen(connectors.hidden or "no connector", where)
    value = read(found)
    as_truth = truth(value)
    return _given(value if as_truth is None else as_truth, found.source, where)


def hybrid_manager(facts: EngineFacts) -> Reading:
    """Whether the hybrid KV cache manager is on; unset, it depends on release, model and connector."""
    where = "--[no-]disable-hybrid-kv-cache-manager"
    found = _flag(facts, "disable-hybrid-kv-cache-manager", where, BUILD, WEIGHTS, CONNECTOR, VARIABLES)
    if not found.known:
        return found
    off = truth(found.value)
    return _given(None if off is None else not off, found.source, where)


def speculative(facts: EngineFacts) -> Reading:
    """The draft as far as it is hashed: EAGLE and MTP kinds; None for no draft or one that adds no KV."""
    name, where = "speculative-config", "--speculative-config"
    hidden = facts.arguments.hidden(name)
    if hidden is not None:
        return _unseen(hidden, where)
    found = facts.arguments.flags.get(name)
    if found is None:
        return _given(None, "no flag", where)
    if not isinstance(found.value, dict):
        return _unseen(f"{found.source} is no JSON object", where)
    if found.value.get("method") in factors.PLAIN_DRAFTS:
        return _given(None, found.source, where)
    hashed: dict[str, JsonValue] = {key: found.value.get(key) for key in factors.SPECULATIVE_KEYS}
    cache = found.value.get("kv_cache_dtype") or facts.arguments.value("kv-cache-dtype") or "auto"
    return _given(
        {**{key: value for key, value in hashed.items() if value is not None}, "kv": cache}, found.source
    )


def mode(facts: EngineFacts) -> Reading:
    """Pull or push, which follows from the connector's class."""
    return _of_connector(facts, lambda found: found.mode)


def connector_name(connectors: Connectors) -> Reading:
    """The class of the connector that moves KV between engines."""
    where = "--kv-transfer-config"
    found = connectors.transfer
    if connectors.hidden is not None:
        return _unseen(connectors.hidden, where)
    return _given(found.name if found else None, found.source if found else "no flag", where)


def number(facts: EngineFacts, flag: str, default: int) -> Reading:
    """A size such as a degree of parallelism, with the engine's own default where it is not given."""
    hidden = facts.arguments.hidden(flag)
    if hidden is not None:
        return _unseen(hidden, f"--{flag}")
    found = facts.arguments.flags.get(flag)
    if found is None:
        return _given(default, f"default of {facts.kind}")
    value = whole(found.value)
    if not value:
        return _unseen(f"{found.source} is no number above 0", f"--{flag}")
    return _given(value, found.source)


def block_size(facts: EngineFacts) -> Reading:
    """Tokens per block by flag. The metric's label may be wrong on hybrid models, so it is no value here."""
    where = "--block-size"
    found = _flag(facts, "block-size", where, BUILD, WEIGHTS, GPU, CACHE, VARIABLES)
    if not found.known:
        return found
    value = whole(found.value)
    return _given(value, found.source) if value else _unseen(f"{found.source} is no number above 0", where)


def labelled_block_size(facts: EngineFacts) -> int | None:
    """Tokens per block as the metric's label says; a hint alone."""
    return whole(facts.live.cache_config.get("block_size")) or None


def layout(facts: EngineFacts) -> Reading:
    """The KV memory layout. Without a variable NIXL takes HND for models whose heads can be divided."""
    where = "label kv_cache_layout of vllm:cache_config_info (from 0.30)"
    live = facts.live.cache_config.get("kv_cache_layout")
    if live and live.upper() in factors.LAYOUT_NAMES:
        return _given(factors.LAYOUT_NAMES[live.upper()], "vllm:cache_config_info", where)
    name = "VLLM_KV_CACHE_LAYOUT"
    given, hidden = facts.arguments.env.get(name), facts.arguments.hidden(name)
    if hidden is not None:
        return Reading(None, hidden, where, known=False, depends=frozenset({VARIABLES}))
    if given is None:
        return _given("HND", "chosen by NIXL", where)
    value = factors.LAYOUT_NAMES.get(str(given.value).upper())
    return _given(value, given.source) if value else _unseen(f"{given.source} is no known layout", where)


def quantization(facts: EngineFacts) -> Reading:
    """How weights are quantised, by flag or by the checkpoint."""
    where = "--quantization, or quantization_config in config.json"
    found = _flag(facts, "quantization", where, WEIGHTS)
    if found.known or found.depends is None or facts.geometry is None:
        return found
    return Reading(facts.geometry.quantization, "config.json", where, depends=found.depends)


def page_size(facts: EngineFacts) -> Reading:
    """SGLang's tokens per page."""
    return _flag(facts, "page-size", "--page-size", BUILD, WEIGHTS, GPU)


HASHED: Mapping[str, Callable[[EngineFacts], Reading]] = {
    factors.VERSION: version,
    factors.MODEL: model,
    factors.DTYPE: dtype,
    factors.GEOMETRY: kv_geometry,
    factors.BACKEND: attention_backend,
    factors.CACHE_DTYPE: cache_dtype,
    factors.CROSS_LAYER: cross_layer,
    factors.HYBRID: hybrid_manager,
    factors.SPECULATIVE: speculative,
    factors.MODE: mode,
}
