"""What passes the engines' own check and must not be mixed (research/telemetry.md 3.2 and 3.5)."""

from __future__ import annotations

from collections.abc import Iterator

from policy.transfer import factors, readings
from policy.transfer.compare import compare_factor
from policy.transfer.facts import EngineFacts
from policy.transfer.findings import Factor, Finding, MissingFact, Shown, finding
from policy.transfer.pair import Pair, Ruling, join
from policy.transfer.sameness import SIDES, tag_of
from policy.transfer.values import JsonValue, shown, truth

# Flags no engine compares although KV depends on them. A flag on one side alone differs from its default.
_UNCHECKED = {
    "code-revision": "the model's own code",
    "rope-scaling": "rotary scaling",
    "rope-theta": "the rotary base",
    "tokenizer": "the tokenizer",
    "tokenizer-revision": "the tokenizer's revision",
    "enable-lora": "whether adapters are served",
    "lora-modules": "the adapters",
    "lora-paths": "the adapters",
}


def danger_rules(pair: Pair) -> Ruling:
    """Weights, quantisation, overrides, other unchecked flags, the check itself, and the image."""
    return join(
        [
            _weights(pair),
            _quantization(pair),
            _overrides(pair),
            Ruling(tuple(_unchecked(pair))),
            Ruling(tuple(_enforcement(pair))),
            Ruling(tuple(_scales(pair))),
            Ruling(tuple(_images(pair)), tuple(_digests_unknown(pair))),
        ]
    )


def _weights(pair: Pair) -> Ruling:
    state = pair.same.states[readings.WEIGHTS]
    sides = _loaded(pair.prefill), _loaded(pair.decode)
    label, because = "weights", ""
    if state == "unknown" and pair.same.identical:
        state, because = "equal", "the same model reference on both sides"
    factor = Factor(factors.WEIGHTS, label, state, *sides, because)
    if state == "unknown":
        missing = pair.same.missing[readings.WEIGHTS]
        fallback = MissingFact(
            "both", factors.WEIGHTS, "the commit or digest of the weights", "a pinned --revision"
        )
        return Ruling((), missing or (fallback,), (factor,))
    if state == "equal":
        return Ruling((), (), (factor,))
    sentence = (
        f"Different weights: prefill {sides[0].value} ({sides[0].source}), decode {sides[1].value} "
        f"({sides[1].source}). No engine compares them, all metrics stay green, and answers are wrong."
    )
    action = "Pin the same --revision on both roles, or keep the two revisions apart in the router."
    return Ruling(
        (finding("weights-differ", factors.WEIGHTS, "dangerous", sentence, action, *sides),), (), (factor,)
    )


def _loaded(facts: EngineFacts) -> Shown:
    if facts.model_artifact is not None:
        return Shown(facts.model_artifact, "loaded artifact")
    name, revision = readings.model(facts), facts.arguments.flags.get("revision")
    said = shown(name.value) if name.known else "not known"
    if revision is None:
        return Shown(f"{said}, not pinned", name.source)
    return Shown(f"{said} at {shown(revision.value)}", revision.source)


def _quantization(pair: Pair) -> Ruling:
    sides = readings.quantization(pair.prefill), readings.quantization(pair.decode)
    found, missing = compare_factor(factors.QUANTIZATION, "weight quantisation", *sides, pair.same)
    if found.state != "different":
        return Ruling((), missing, (found,))
    sentence = (
        f"Different weight quantisation: prefill {found.prefill.value} ({found.prefill.source}), decode "
        f"{found.decode.value} ({found.decode.source}). No engine compares it; the KV of one is not the other's."
    )
    action = "Use the same --quantization on both roles."
    made = finding(
        "quantization-differs",
        factors.QUANTIZATION,
        "dangerous",
        sentence,
        action,
        found.prefill,
        found.decode,
    )
    return Ruling((made,), missing, (found,))


def _overrides(pair: Pair) -> Ruling:
    sides = [readings.overrides(facts) for facts in (pair.prefill, pair.decode)]
    shown_sides = pair.flag("hf-overrides")
    if None in sides:
        return Ruling(
            (),
            ()
            if pair.same.identical
            else tuple(_hidden(pair, "hf-overrides", "the overrides of config.json")),
        )
    rest = [_without_geometry(side or {}) for side in sides]
    if rest[0] == rest[1]:
        return Ruling()
    sentence = (
        f"Different overrides of config.json: prefill {shown(rest[0])}, decode {shown(rest[1])}. They keep "
        "the shape of the KV and may change its meaning; no engine compares them."
    )
    action = "Give the same --hf-overrides to both roles."
    return Ruling((finding("overrides-differ", "hf-overrides", "dangerous", sentence, action, *shown_sides),))


def _without_geometry(given: object) -> JsonValue:
    if not isinstance(given, dict):
        return {}
    return {key: value for key, value in given.items() if key not in readings.GEOMETRY_KEYS}


def _hidden(pair: Pair, flag: str, fact: str) -> Iterator[MissingFact]:
    if pair.prefill.arguments.hidden(flag) is not None:
        yield MissingFact("prefill", flag, fact, f"--{flag}")
    if pair.decode.arguments.hidden(flag) is not None:
        yield MissingFact("decode", flag, fact, f"--{flag}")


def _unchecked(pair: Pair) -> Iterator[Finding]:
    for flag, what in _UNCHECKED.items():
        one, other = (facts.arguments for facts in (pair.prefill, pair.decode))
        if one.hidden(flag) or other.hidden(flag) or one.value(flag) == other.value(flag):
            continue
        sides = pair.flag(flag)
        yield finding(
            f"{flag}-differs",
            flag,
            "dangerous",
            f"Different {what}: prefill {sides[0].value}, decode {sides[1].value}. No engine compares it.",
            f"Give the same --{flag} to both roles.",
            *sides,
        )


def _enforcement(pair: Pair) -> Iterator[Finding]:
    if pair.family != "nixl" or pair.transfer is None or pair.enforced:
        return
    off = [f"{each.source}: enforce_handshake_compat" for each in pair.transfer if not each.enforces]
    yield finding(
        "enforcement-off",
        "enforcement",
        None if pair.same.identical else "dangerous",
        f"The engine's own compatibility check is turned off ({', '.join(off)}). A mismatch is then seen as "
        "wrong answers or a crash.",
        "Remove enforce_handshake_compat from the connector's extra config.",
        *(Shown("on" if each.enforces else "off", each.source) for each in pair.transfer),
    )


def _scales(pair: Pair) -> Iterator[Finding]:
    """Scales that an engine computes while it runs stay behind when the KV moves."""
    on = [truth(facts.arguments.value("calculate-kv-scales")) for facts in (pair.prefill, pair.decode)]
    if True in on:
        yield finding(
            "kv-scales-calculated",
            factors.CACHE_DTYPE,
            "dangerous",
            "KV scales are computed at run time (--calculate-kv-scales) and do not move with the KV.",
            "Use a checkpoint that brings its scales, and remove the flag.",
            *pair.flag("calculate-kv-scales"),
        )


def _images(pair: Pair) -> Iterator[Finding]:
    sides = [_image(facts) for facts in (pair.prefill, pair.decode)]
    for side, facts in zip(("prefill", "decode"), (pair.prefill, pair.decode), strict=True):
        if len(set(facts.image_digests)) > 1:
            yield finding(
                f"{side}-digests-mixed",
                factors.IMAGE,
                "dangerous",
                f"Pods of one {side} revision run {len(set(facts.image_digests))} image digests: its tag moved.",
                "Name the image by digest and replace the older pods.",
                *sides,
            )
    tags = tag_of(pair.prefill), tag_of(pair.decode)
    digests = pair.prefill.digest, pair.decode.digest
    if None in digests or digests[0] == digests[1]:
        return
    moved = tags[0] is not None and tags[0] == tags[1]
    yield finding(
        "tag-moved" if moved else "builds-differ",
        factors.IMAGE,
        "dangerous" if moved else None,
        f"One tag, two images: {':'.join(tags[0] or ())} is {digests[0]} on prefill and {digests[1]} on decode."
        if moved
        else "The two roles run different images. The engines compare the version string alone.",
        "Name images by digest." if moved else "Use one image for both roles where you can.",
        *sides,
    )


def _digests_unknown(pair: Pair) -> Iterator[MissingFact]:
    """A tag alone may mean other bits tomorrow."""
    for side, facts in zip(SIDES, (pair.prefill, pair.decode), strict=True):
        if facts.digest is None and not facts.image_digests:
            yield MissingFact(
                side, factors.IMAGE, "the image digest", "imageID of the pods, or an image by digest"
            )


def _image(facts: EngineFacts) -> Shown:
    if len(set(facts.image_digests)) > 1:
        return Shown(f"{len(set(facts.image_digests))} digests", "imageID of the pods")
    if facts.image_digests:
        return Shown(facts.digest or "", "imageID of the pods")
    return Shown(facts.arguments.image or "not known", "pod spec")
