"""What NIXL checks after the hash: sizes, layouts and parallelism (research/telemetry.md 3.3).

In pull mode decode is the local side and prefill the remote one; most rules are not symmetric. A rule that
needs a fact nobody knows gives that fact back as missing, and only where the answer hangs on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from policy.transfer import factors, readings
from policy.transfer.compare import compare_factor
from policy.transfer.findings import Finding, MissingFact, finding
from policy.transfer.pair import Pair, Ruling, join
from policy.transfer.readings import Reading

_TP_FLAG = "tensor-parallel-size"


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Tensor parallel degrees, known on both sides."""

    prefill: int
    decode: int
    sides: tuple[Reading, Reading]

    @property
    def narrows(self) -> bool:
        return self.prefill > self.decode


def geometry_rules(pair: Pair) -> Ruling:
    """All run-time rules of the NIXL connector; those of other connectors are in `rules_other`."""
    sizes, tensor = _tensor_parallel(pair)
    rulings = [
        tensor,
        _block_size(pair, sizes),
        _layout(pair, sizes),
        _context_parallel(pair),
        _pipeline(pair),
    ]
    if sizes is not None:
        rulings += [_divisible(sizes), _heads(pair, sizes), _nvfp4(pair, sizes)]
    return join([*rulings, _state_layers(pair)])


def tensor_parallel(pair: Pair) -> tuple[Reading, Reading]:
    """Tensor parallel degrees of both sides."""
    return readings.number(pair.prefill, _TP_FLAG, 1), readings.number(pair.decode, _TP_FLAG, 1)


def _tensor_parallel(pair: Pair) -> tuple[_Sizes | None, Ruling]:
    sides = tensor_parallel(pair)
    factor, missing = compare_factor(factors.TENSOR_PARALLEL, "tensor parallel size", *sides, pair.same)
    ruling = Ruling((), missing, (factor,))
    one, other = sides[0].value, sides[1].value
    if isinstance(one, int) and isinstance(other, int):
        return _Sizes(one, other, sides), ruling
    return None, ruling


def _made(id: str, factor: str, sentence: str, action: str, sides: tuple[Reading, Reading]) -> Ruling:
    return Ruling((_refused(id, factor, sentence, action, sides),))


def _refused(id: str, factor: str, sentence: str, action: str, sides: tuple[Reading, Reading]) -> Finding:
    return finding(id, factor, "incompatible", sentence, action, sides[0].shown(), sides[1].shown())


def _divisible(sizes: _Sizes) -> Ruling:
    large, small = max(sizes.prefill, sizes.decode), min(sizes.prefill, sizes.decode)
    if large % small == 0:
        return Ruling()
    sentence = (
        f"Tensor parallel {sizes.prefill} on prefill and {sizes.decode} on decode: the larger is no multiple of "
        'the smaller. The engine says "not divisible by ... tensor parallel size".'
    )
    action = "Choose sizes of which one divides the other."
    return _made("tp-not-divisible", factors.TENSOR_PARALLEL, sentence, action, sizes.sides)


def _heads(pair: Pair, sizes: _Sizes) -> Ruling:
    """Sizes that differ, against the number of KV heads. MLA and state layers are not divided by heads."""
    if sizes.prefill == sizes.decode or (pair.geometry and (pair.geometry.is_mla or pair.geometry.has_state)):
        return Ruling(tuple(_advice(sizes)))
    if pair.geometry is None or pair.geometry.kv_heads is None:
        fact = MissingFact("both", factors.GEOMETRY, "the number of KV heads", "config.json of the model")
        return Ruling(tuple(_advice(sizes)), (fact,))
    heads = pair.geometry.kv_heads
    if sizes.narrows and sizes.prefill > heads:
        sentence = (
            f"Prefill divides {heads} KV heads among {sizes.prefill} ranks, so it keeps copies, and decode has "
            f"fewer ranks ({sizes.decode}). The engine refuses that with a bare AssertionError."
        )
        action = f"Give prefill at most {heads} ranks, or decode at least as many as prefill."
        return _made("prefill-tp-above-heads", factors.TENSOR_PARALLEL, sentence, action, sizes.sides)
    if sizes.prefill <= heads < sizes.decode:
        return _copies_on_decode(pair, sizes, heads)
    return Ruling(tuple(_advice(sizes)))


def _advice(sizes: _Sizes) -> Iterator[Finding]:
    if sizes.narrows:
        yield finding(
            "prefill-tp-above-decode",
            factors.TENSOR_PARALLEL,
            None,
            f"Prefill has more ranks ({sizes.prefill}) than decode ({sizes.decode}). It works for this model, and "
            "the project advises against it.",
            "Give decode at least as many ranks as prefill.",
            sizes.sides[0].shown(),
            sizes.sides[1].shown(),
        )


def _copies_on_decode(pair: Pair, sizes: _Sizes, heads: int) -> Ruling:
    if pair.release is not None and pair.release >= factors.REPLICATED_DECODE_TAKEN:
        return Ruling()
    if pair.release is not None and pair.release <= factors.REPLICATED_DECODE_REFUSED:
        sentence = (
            f"Decode divides {heads} KV heads among {sizes.decode} ranks and prefill among {sizes.prefill}. This "
            "release expects sizes that shrink with the ranks and refuses (vllm#45330)."
        )
        action = f"Give decode at most {heads} ranks, or use a release that has the correction."
        return _made("decode-tp-above-heads", factors.TENSOR_PARALLEL, sentence, action, sizes.sides)
    fact = "whether this release takes more decode ranks than KV heads (vllm#45330)"
    return Ruling((), (MissingFact("both", factors.TENSOR_PARALLEL, fact, "the release notes"),))


def _nvfp4(pair: Pair, sizes: _Sizes) -> Ruling:
    kinds = readings.cache_dtype(pair.prefill), readings.cache_dtype(pair.decode)
    four_bits = any(each.known and str(each.value).startswith("nvfp4") for each in kinds)
    if not four_bits or sizes.prefill == sizes.decode:
        return Ruling()
    sentence = "An NVFP4 KV cache cannot be divided anew, and the tensor parallel sizes differ."
    action = "Use the same tensor parallel size on both roles, or another KV cache dtype."
    return _made("nvfp4-tp-differs", factors.CACHE_DTYPE, sentence, action, sizes.sides)


def is_hybrid(pair: Pair) -> bool | None:
    """Whether the model needs the hybrid KV cache manager; None if the geometry is not known."""
    return pair.geometry.is_hybrid if pair.geometry is not None else None


def _block_size(pair: Pair, sizes: _Sizes | None) -> Ruling:
    sides = readings.block_size(pair.prefill), readings.block_size(pair.decode)
    factor, missing = compare_factor(factors.BLOCK_SIZE, "block size", *sides, pair.same)
    if factor.state != "different":
        hints = tuple(_label_hint(pair)) if factor.state == "unknown" else ()
        return Ruling(hints, missing, (factor,))
    return join([Ruling((), missing, (factor,)), _unequal_blocks(pair, sizes, sides)])


def _unequal_blocks(pair: Pair, sizes: _Sizes | None, sides: tuple[Reading, Reading]) -> Ruling:
    prefill, decode = sides[0].value, sides[1].value
    assert isinstance(prefill, int) and isinstance(decode, int)
    action = "Set the same --block-size on both roles."
    numbers = f"Block size {prefill} on prefill and {decode} on decode"
    if decode % prefill != 0:
        sentence = (
            f"{numbers}: decode's must be a multiple of prefill's. The engine says \"Local block size {decode} "
            f'is not divisible by remote block size {prefill}", for every request, while the server stays healthy.'
        )
        return _made("block-size-not-multiple", factors.BLOCK_SIZE, sentence, action, sides)
    reasons = []
    if sizes is not None and sizes.narrows:
        reasons.append("prefill has more ranks than decode")
    if pair.transfer is not None and "cpu" in [each.buffer_device for each in pair.transfer]:
        reasons.append("the KV passes a buffer in host memory")
    if is_hybrid(pair):
        reasons.append("the model is a hybrid")
    if reasons:
        sentence = f"{numbers}: they must be equal here, because {' and '.join(reasons)}."
        return _made("block-size-unequal", factors.BLOCK_SIZE, sentence, action, sides)
    facts = []
    if sizes is None:
        facts.append(
            MissingFact("both", factors.TENSOR_PARALLEL, "the tensor parallel sizes", f"--{_TP_FLAG}")
        )
    if is_hybrid(pair) is None:
        facts.append(MissingFact("both", factors.GEOMETRY, "whether the model is a hybrid", "config.json"))
    if not pair.pulls:
        facts.append(
            MissingFact("both", factors.BLOCK_SIZE, "the rule for unequal blocks in push mode", "a test")
        )
    return Ruling((), tuple(facts))


def _label_hint(pair: Pair) -> Iterator[Finding]:
    """The metric's labels look wrong together. They may be misreported, so this is a remark alone."""
    labels = [readings.labelled_block_size(facts) for facts in (pair.prefill, pair.decode)]
    prefill, decode = labels
    if prefill is None or decode is None or decode % prefill == 0:
        return
    sides = [Reading(value, "vllm:cache_config_info", "") for value in labels]
    yield finding(
        "block-size-label",
        factors.BLOCK_SIZE,
        None,
        f"The metric says block size {prefill} on prefill and {decode} on decode, which would not fit. The label "
        "can be wrong for hybrid models, so it decides nothing.",
        "Set --block-size on both roles, then it is known.",
        sides[0].shown(),
        sides[1].shown(),
    )


def _layout(pair: Pair, sizes: _Sizes | None) -> Ruling:
    if pair.geometry is not None and pair.geometry.is_mla:
        return Ruling()
    sides = readings.layout(pair.prefill), readings.layout(pair.decode)
    factor, missing = compare_factor(factors.LAYOUT, "KV memory layout", *sides, pair.same)
    base = Ruling((), missing, (factor,))
    if not all(each.known for each in sides):
        return base
    permutes = pair.transfer is not None and pair.transfer[1].switch("enable_permute_local_kv")
    if factor.state == "different":
        return join([base, _layouts_differ(pair, sides, permutes)])
    if sizes is None or sizes.prefill == sizes.decode or sides[1].value == "HND":
        return base
    heads = pair.geometry.kv_heads if pair.geometry is not None else None
    if heads is None:
        return join([base, Ruling((), (_is_mla_unknown(),))])
    if sizes.prefill > heads:
        return base
    sentence = (
        "Tensor parallel sizes differ and the layout is NHD, in which the heads of a rank do not lie together. "
        'The engine says "head-dimension splitting requires contiguous heads".'
    )
    action = "Use the layout HND (VLLM_KV_CACHE_LAYOUT=HND), or equal tensor parallel sizes."
    return join([base, _made("layout-not-contiguous", factors.LAYOUT, sentence, action, sides)])


def _layouts_differ(pair: Pair, sides: tuple[Reading, Reading], permutes: bool) -> Ruling:
    if pair.geometry is None:
        return Ruling((), (_is_mla_unknown(),))
    if permutes and sides[0].value == "HND" and not pair.geometry.is_hybrid:
        return Ruling()
    sentence = (
        f"Layout {sides[0].value} on prefill and {sides[1].value} on decode. Only prefill HND into decode NHD is "
        "turned around, with enable_permute_local_kv and no hybrid model."
    )
    action = "Use the layout HND on both roles."
    return _made("layout-differs", factors.LAYOUT, sentence, action, sides)


def _is_mla_unknown() -> MissingFact:
    return MissingFact("both", factors.GEOMETRY, "whether the model uses MLA", "config.json of the model")


def _context_parallel(pair: Pair) -> Ruling:
    rulings = []
    sizes: dict[str, tuple[Reading, Reading]] = {}
    for id, flag, label in (
        (factors.DECODE_CONTEXT, "decode-context-parallel-size", "decode context parallel size"),
        (factors.PREFILL_CONTEXT, "prefill-context-parallel-size", "prefill context parallel size"),
    ):
        sides = readings.number(pair.prefill, flag, 1), readings.number(pair.decode, flag, 1)
        factor, missing = compare_factor(id, label, *sides, pair.same)
        sizes[id] = sides
        rulings.append(Ruling((), missing, (factor,)))
        rulings.append(_context_sizes(pair, id, label, sides))
    rulings.append(_context_mix(sizes))
    return join(rulings)


def _context_sizes(pair: Pair, id: str, label: str, sides: tuple[Reading, Reading]) -> Ruling:
    one, other = sides[0].value, sides[1].value
    if not isinstance(one, int) or not isinstance(other, int) or (one, other) == (1, 1):
        return Ruling()
    if max(one, other) % min(one, other) != 0:
        sentence = f"The {label} is {one} on prefill and {other} on decode; one must divide the other."
        return _made(
            f"{id}-not-divisible", id, sentence, "Choose sizes of which one divides the other.", sides
        )
    state = pair.geometry is not None and pair.geometry.has_state
    if id == factors.DECODE_CONTEXT and one != other and state:
        sentence = f"The {label} differs ({one} and {other}), and models with state layers need it equal."
        return _made(f"{id}-unequal", id, sentence, "Use the same size on both roles.", sides)
    facts = []
    if pair.geometry is None and one != other:
        facts.append(
            MissingFact("both", factors.GEOMETRY, "whether the model has state layers", "config.json")
        )
    if pair.release is None or pair.release < factors.CONTEXT_PARALLEL_SINCE:
        said = "whether this release moves KV that is divided along the context"
        facts.append(MissingFact("both", id, said, "the release notes; 0.29 and later do"))
    return Ruling((), tuple(facts))


def _context_mix(sizes: dict[str, tuple[Reading, Reading]]) -> Ruling:
    decode_sizes, prefill_sizes = sizes[factors.DECODE_CONTEXT], sizes[factors.PREFILL_CONTEXT]
    for own, peer in ((0, 1), (1, 0)):
        copies, shards = prefill_sizes[own].value, decode_sizes[peer].value
        if isinstance(copies, int) and isinstance(shards, int) and copies > 1 and shards > 1:
            sentence = "One side keeps copies along the context (PCP) and the other divides it (DCP)."
            action = "Use one kind of context parallelism on both roles."
            return _made("context-parallel-mixed", factors.PREFILL_CONTEXT, sentence, action, prefill_sizes)
    return Ruling()


def _pipeline(pair: Pair) -> Ruling:
    flag = "pipeline-parallel-size"
    sides = readings.number(pair.prefill, flag, 1), readings.number(pair.decode, flag, 1)
    factor, missing = compare_factor(factors.PIPELINE_PARALLEL, "pipeline parallel size", *sides, pair.same)
    base = Ruling((), missing, (factor,))
    if isinstance(sides[1].value, int) and sides[1].value > 1:
        sentence = (
            f"Decode has pipeline parallel size {sides[1].value}; the connector refuses more than 1 there."
        )
        action = "Use pipeline parallel size 1 on decode."
        return join([base, _made("decode-pipeline", factors.PIPELINE_PARALLEL, sentence, action, sides)])
    if not isinstance(sides[0].value, int) or sides[0].value == 1:
        return base
    manager = readings.hybrid_manager(pair.prefill)
    if pair.pulls and manager.known and manager.value is True:
        sentence = (
            "Prefill has pipeline stages and the hybrid KV cache manager; the pull connector refuses both."
        )
        action = "Turn the hybrid manager off on both roles, or use pipeline parallel size 1."
        return join([base, _made("pipeline-with-hybrid", factors.PIPELINE_PARALLEL, sentence, action, sides)])
    if manager.known and pair.pulls is not None:
        return base
    fact = MissingFact("prefill", factors.HYBRID, "whether the hybrid KV cache manager is on", manager.where)
    return join([base, Ruling((), (fact,))])


def _state_layers(pair: Pair) -> Ruling:
    """Mamba hybrids: the convolution's layout is a condition; block ratios and prefix caching exclude each other."""
    if pair.geometry is None or not pair.geometry.has_state:
        return Ruling()
    name, findings, missing = "VLLM_SSM_CONV_STATE_LAYOUT", [], []
    for side, facts in (("prefill", pair.prefill), ("decode", pair.decode)):
        if facts.arguments.hidden(name) is not None:
            missing.append(MissingFact("both", name, f"{name} on {side}", "the container's env"))
            continue
        given = facts.arguments.env.get(name)
        if given is None or str(given.value).upper() != "DS":
            findings.append(
                finding(
                    f"{side}-conv-layout",
                    name,
                    "incompatible",
                    f"The model keeps convolution states, and {side} does not set {name}=DS: it does not start.",
                    f"Set {name}=DS on both roles.",
                )
            )
    return Ruling(tuple(findings), () if pair.same.identical else tuple(missing))
