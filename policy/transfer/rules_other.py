"""Pairs that NIXL's checks do not cover: Mooncake and other connectors, SGLang, TensorRT-LLM, two engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from policy.transfer import factors, readings
from policy.transfer.compare import compare_factor
from policy.transfer.facts import EngineFacts
from policy.transfer.findings import Factor, Finding, MissingFact, Shown, State, finding
from policy.transfer.pair import Pair, Ruling, join
from policy.transfer.readings import Reading
from policy.transfer.rules_geometry import tensor_parallel
from policy.transfer.sameness import SIDES

_Read = Callable[[EngineFacts], Reading]


def kind_rules(pair: Pair) -> Ruling:
    """Whether both sides run one kind of engine that is known here."""
    kinds = [facts.kind for facts in (pair.prefill, pair.decode)]
    sides = tuple(
        Shown(facts.kind if facts.kind != "unknown" else "not known", facts.arguments.kind_source)
        for facts in (pair.prefill, pair.decode)
    )
    shown = sides[0], sides[1]
    if "unknown" in kinds:
        state: State = "equal" if pair.same.identical else "unknown"
        missing = tuple(
            MissingFact(side, factors.ENGINE, "which engine runs", "its metrics, or a readable command")
            for side, kind in zip(SIDES, kinds, strict=True)
            if kind == "unknown" and not pair.same.identical
        )
        return Ruling((), missing, (Factor(factors.ENGINE, "engine", state, *shown),))
    if kinds[0] == kinds[1]:
        return Ruling((), (), (Factor(factors.ENGINE, "engine", "equal", *shown),))
    sentence = (
        f"Two engines: prefill runs {kinds[0]}, decode {kinds[1]}. Their KV caches have nothing in common."
    )
    action = "Run the same engine on both roles."
    made = finding("engines-differ", factors.ENGINE, "incompatible", sentence, action, *shown)
    return Ruling((made,), (), (Factor(factors.ENGINE, "engine", "different", *shown),))


def connector_rules(pair: Pair) -> Ruling:
    """vLLM connectors that are not known to be NIXL. Mooncake wants equal ranks (llm-d's own demand)."""
    sides = tensor_parallel(pair)
    found, missing = compare_factor(factors.TENSOR_PARALLEL, "tensor parallel size", *sides, pair.same)
    blocks = readings.block_size(pair.prefill), readings.block_size(pair.decode)
    block, block_missing = compare_factor(factors.BLOCK_SIZE, "block size", *blocks, pair.same)
    base = Ruling((), (*missing, *block_missing), (found, block))
    if pair.family == "mooncake" and found.state == "different":
        sentence = f"Tensor parallel {found.prefill.value} on prefill and {found.decode.value} on decode."
        made = _made(
            "mooncake-tp-differs",
            found,
            f"{sentence} With the Mooncake connector they must be equal.",
            "Use the same tensor parallel size on both roles.",
        )
        return join([base, made])
    if pair.family is None or found.state == block.state == "equal":
        return base
    fact = f"what the {pair.family} connector demands of unequal sizes and blocks"
    return join([base, Ruling((), (MissingFact("both", factors.CONNECTOR, fact, "its documentation"),))])


def _made(id: str, factor: Factor, sentence: str, action: str) -> Ruling:
    return Ruling((finding(id, factor.id, "incompatible", sentence, action, factor.prefill, factor.decode),))


def sglang_rules(pair: Pair) -> Ruling:
    """SGLang compares page size and KV cache dtype, and nothing else (research/telemetry.md 3.8)."""
    checked: Mapping[str, tuple[str, _Read]] = {
        "page-size": ("page size", readings.page_size),
        factors.CACHE_DTYPE: ("KV cache dtype", readings.cache_dtype),
        "disaggregation-transfer-backend": ("transfer backend", _backend),
    }
    unchecked: Mapping[str, tuple[str, _Read]] = {
        factors.VERSION: ("exact SGLang version", readings.version),
        factors.MODEL: ("model as it is named", readings.model),
        factors.DTYPE: ("model dtype", readings.dtype),
        factors.GEOMETRY: ("KV heads, head size and layers", readings.kv_geometry),
        factors.SPECULATIVE: ("speculative algorithm", _algorithm),
    }
    rulings = [_sglang_factor(pair, id, label, read, refuses=True) for id, (label, read) in checked.items()]
    rulings += [
        _sglang_factor(pair, id, label, read, refuses=False) for id, (label, read) in unchecked.items()
    ]
    return join([*rulings, _sglang_parallel(pair), _sglang_modes(pair)])


def _backend(facts: EngineFacts) -> Reading:
    return _with_default(facts, "disaggregation-transfer-backend", "mooncake")


def _algorithm(facts: EngineFacts) -> Reading:
    return _with_default(facts, "speculative-algorithm", None)


def _with_default(facts: EngineFacts, flag: str, default: str | None) -> Reading:
    hidden = facts.arguments.hidden(flag)
    if hidden is not None:
        return Reading(None, hidden, f"--{flag}", known=False)
    found = facts.arguments.flags.get(flag)
    return (
        Reading(default, "default of sglang", "") if found is None else Reading(found.value, found.source, "")
    )


def _sglang_factor(pair: Pair, id: str, label: str, read: _Read, *, refuses: bool) -> Ruling:
    found, missing = compare_factor(id, label, read(pair.prefill), read(pair.decode), pair.same)
    if id == factors.VERSION and found.state == "unknown" and pair.same.states[readings.BUILD] != "unknown":
        state = pair.same.states[readings.BUILD]
        found, missing = Factor(id, label, state, found.prefill, found.decode, "by the images"), ()
    if found.state != "different":
        return Ruling((), missing, (found,))
    values = f"prefill {found.prefill.value}, decode {found.decode.value}"
    if refuses:
        said = factors.SGLANG_CHECKED.get(id)
        why = f'Decode refuses prefill: "{said}".' if said else "The two cannot talk."
    else:
        why = "SGLang does not compare it, so KV is misread or requests hang."
    made = finding(
        f"differs-{id}",
        id,
        "incompatible" if refuses else "dangerous",
        f"Different {label}: {values}. {why}",
        f"Use the same {label} on both roles.",
        found.prefill,
        found.decode,
    )
    return Ruling((made,), missing, (found,))


def _sglang_parallel(pair: Pair) -> Ruling:
    sides = tensor_parallel(pair)
    found, missing = compare_factor(factors.TENSOR_PARALLEL, "tensor parallel size", *sides, pair.same)
    base = Ruling((), missing, (found,))
    if found.state != "different":
        return base
    if pair.geometry is None:
        fact = MissingFact(
            "both", factors.GEOMETRY, "whether the model uses MLA or is a hybrid", "config.json"
        )
        return join([base, Ruling((), (fact,))])
    sizes = f"Tensor parallel {found.prefill.value} on prefill and {found.decode.value} on decode"
    if pair.geometry.is_hybrid:
        sentence = f"{sizes}: SGLang does not move the windows or states of a hybrid between unequal sizes."
        return join([base, _made("sglang-hybrid-tp", found, sentence, "Use the same size on both roles.")])
    if pair.geometry.is_mla:
        return base
    sentence = f"{sizes}: it works and is slow, because heads are sent slice by slice."
    slow = finding(
        "sglang-tp-differs", found.id, "slow", sentence, "Use the same size.", found.prefill, found.decode
    )
    return join([base, Ruling((slow,))])


def _sglang_modes(pair: Pair) -> Ruling:
    findings: list[Finding] = []
    missing: list[MissingFact] = []
    shown = pair.flag("disaggregation-mode")
    for side, facts in (("prefill", pair.prefill), ("decode", pair.decode)):
        hidden = facts.arguments.hidden("disaggregation-mode")
        mode = facts.arguments.value("disaggregation-mode")
        if hidden is None and mode != side:
            sentence = f"The {side} engine has --disaggregation-mode {mode or 'not set'}."
            action = f"Set --disaggregation-mode {side} there."
            findings.append(
                finding(f"{side}-mode-wrong", "disaggregation-mode", "incompatible", sentence, action, *shown)
            )
        elif hidden is not None and not pair.same.identical:
            fact = MissingFact(
                "prefill" if side == "prefill" else "decode", "disaggregation-mode", "its mode", hidden
            )
            missing.append(fact)
    return Ruling(tuple(findings), tuple(missing))


def trtllm_rules(pair: Pair) -> Ruling:
    """TensorRT-LLM and NIXL must match down to their binary interface; nothing else is known here."""
    build = pair.same.states[readings.BUILD]
    sides = readings.version(pair.prefill).shown(), readings.version(pair.decode).shown()
    factor = Factor(factors.VERSION, "TensorRT-LLM build", build, *sides)
    if build == "different":
        sentence = "Two builds of TensorRT-LLM. It and NIXL must match down to their binary interface."
        action = "Run one image digest on both roles."
        return Ruling(
            (finding("trtllm-builds", factors.VERSION, "dangerous", sentence, action, *sides),), (), (factor,)
        )
    if pair.same.identical:
        return Ruling((), (), (factor,))
    fact = MissingFact("both", factors.ENGINE, "what TensorRT-LLM demands of a pair", "a test of this pair")
    return Ruling((), (fact,), (factor,))
