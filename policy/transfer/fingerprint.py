"""What must be equal for KV to move between engines, as one canonical document.

A recovery combination keeps it for each role: what is put back must give the same document. Two ways of
writing the same setting give the same document; an address, a role or a log level is not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from policy.canonical import Json, digest
from policy.transfer import factors, readings
from policy.transfer.arguments import EngineArguments
from policy.transfer.facts import EngineFacts, LiveFacts
from policy.transfer.readings import Reading
from policy.transfer.sameness import settings, variables
from policy.transfer.values import EVERYTHING, JsonValue

VERSION = 1


def transfer_fingerprint(facts: EngineFacts) -> dict[str, Json]:
    """The document. A factor that cannot be read is `{"unknown": reason}`, one left to the engine is named so.

    `settings` holds every flag that concerns the KV, `hidden` what could not be read, with the digest of its
    text or file where there is one, so that an unread start script that changed is seen.
    """
    arguments = facts.arguments
    return {
        "version": VERSION,
        "engine": facts.kind,
        "image": _plain(facts.digest) or {"unknown": "the image digest was not seen"},
        "weights": _plain(facts.model_artifact) or {"unknown": "the loaded weights were not seen"},
        "gpu": _plain(facts.gpu_product) or {"unknown": "the GPU product was not seen"},
        "factors": {name: _entry(reading) for name, reading in _factors(facts).items()},
        "settings": _plain(settings(arguments)),
        "variables": _plain(variables(arguments)),
        "hidden": _hidden(arguments, facts.file_digests),
    }


def fingerprint_digest(facts: EngineFacts) -> str:
    """The digest of the document."""
    return digest(transfer_fingerprint(facts))


def _factors(facts: EngineFacts) -> dict[str, Reading]:
    """Factors whose values are settings.

    What only running engines or a config.json say is left out: a document must not change by being read again
    with more or less at hand.
    """
    facts = replace(facts, geometry=None, live=LiveFacts(engine=facts.live.engine))
    found = {
        factors.MODEL: readings.model(facts),
        factors.TENSOR_PARALLEL: readings.number(facts, "tensor-parallel-size", 1),
        factors.PIPELINE_PARALLEL: readings.number(facts, "pipeline-parallel-size", 1),
        factors.QUANTIZATION: readings.quantization(facts),
        factors.DTYPE: readings.dtype(facts),
    }
    if facts.kind == "sglang":
        return found | {"page-size": readings.page_size(facts)}
    if facts.kind == "trtllm":
        return found
    return found | {
        factors.BLOCK_SIZE: readings.block_size(facts),
        factors.HYBRID: readings.hybrid_manager(facts),
        factors.SPECULATIVE: readings.speculative(facts),
        factors.CROSS_LAYER: readings.cross_layer(facts),
        factors.MODE: readings.mode(facts),
        factors.DECODE_CONTEXT: readings.number(facts, "decode-context-parallel-size", 1),
        factors.PREFILL_CONTEXT: readings.number(facts, "prefill-context-parallel-size", 1),
    }


def _entry(reading: Reading) -> Json:
    if reading.known:
        return _plain(reading.value)
    return {"left": "to the engine"} if reading.depends is not None else {"unknown": reading.where}


def _plain(value: JsonValue) -> Json:
    """Fractions as text, and text that is no Unicode escaped: canonical JSON has no form for them."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(_plain(name)): _plain(item) for name, item in value.items()}
    return value


def _hidden(arguments: EngineArguments, files: Mapping[str, str]) -> Json:
    hidden: list[Json] = []
    for each in sorted(arguments.opaque, key=lambda found: (found.covers, found.reason)):
        entry: dict[str, Json] = {"covers": each.covers, "reason": _plain(each.reason)}
        if each.path is not None:
            entry["content"] = files.get(each.path)
        elif each.covers == EVERYTHING:
            entry["content"] = digest([_plain(text) for text in arguments.raw])
        hidden.append(entry)
    return hidden
