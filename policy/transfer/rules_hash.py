"""What vLLM's NIXL connector compares by its compatibility hash (research/telemetry.md 3.2)."""

from __future__ import annotations

from policy.transfer import factors
from policy.transfer.compare import compare_factor, compare_hashed
from policy.transfer.factors import HASH_FACTORS, HashFactor
from policy.transfer.findings import Factor, Finding, MissingFact, Outcome, Shown, finding
from policy.transfer.pair import Pair, Ruling, join

_ACTIONS = {
    factors.VERSION: "Run the same engine version on both sides, by the same image digest.",
    factors.MODEL: "Name the model in the same words on both sides.",
    factors.DTYPE: "Set the same --dtype on both sides.",
    factors.GEOMETRY: "Load the same model with the same --hf-overrides on both sides.",
    factors.BACKEND: "Set the same --attention-backend on both sides.",
    factors.CACHE_DTYPE: "Set --kv-cache-dtype to the same word on both sides; fp8 and fp8_e4m3 are two words.",
    factors.CROSS_LAYER: "Set enable_cross_layers_blocks alike in both connectors.",
    factors.HYBRID: "Set --[no-]disable-hybrid-kv-cache-manager alike on both sides.",
    factors.SPECULATIVE: "Set the same --speculative-config on both sides; only its number of tokens may differ.",
    factors.MODE: "Use the pull connector on both sides, or the push connector on both.",
}


def hash_rules(pair: Pair) -> Ruling:
    """The connectors and every hashed factor. Without enforcement a difference is let in, which is worse."""
    return join(
        [
            _connectors(pair),
            *(_hashed(pair, each) for each in HASH_FACTORS if _applies(pair, each)),
            _hashes(pair),
        ]
    )


def _applies(pair: Pair, factor: HashFactor) -> bool:
    release = pair.release
    return factor.absent_from is None or release is None or release < factor.absent_from


def _hashed(pair: Pair, factor: HashFactor) -> Ruling:
    found, missing = compare_hashed(factor, pair.prefill, pair.decode, pair.same)
    if found.state != "different":
        return Ruling((), missing, (found,))
    return Ruling((_difference(pair, factor, found),), missing, (found,))


def _difference(pair: Pair, factor: HashFactor, found: Factor) -> Finding:
    outcome, why = _consequence(pair, factor)
    sentence = (
        f"Different {factor.label}: prefill {found.prefill.value} ({found.prefill.source}), "
        f"decode {found.decode.value} ({found.decode.source}). {why}"
    )
    return finding(
        f"differs-{factor.id}", factor.id, outcome, sentence, _ACTIONS[factor.id], found.prefill, found.decode
    )


def _consequence(pair: Pair, factor: HashFactor) -> tuple[Outcome, str]:
    if pair.enforced is None:
        return "dangerous", "Whether the engines refuse each other cannot be told without the connector."
    if not pair.enforced:
        checked = (
            "The check is turned off"
            if pair.family == "nixl"
            else f"The {pair.family} connector checks nothing"
        )
        return "dangerous", f"{checked}, so this ends in wrong answers or a crash instead of a refusal."
    hashed = True if factor.always else factor.in_hash(pair.release)
    if hashed:
        protocols = _protocols(pair) if factor.id == factors.VERSION else ""
        return "incompatible", f"The handshake refuses it, for every request.{protocols}"
    if hashed is None:
        return (
            "dangerous",
            "Whether this release refuses it is not known here; where it does not, KV is misread.",
        )
    return "dangerous", "This release does not compare it, so the handshake passes and KV is misread."


def _protocols(pair: Pair) -> str:
    numbers = [factors.protocol_of(facts.live.version) for facts in (pair.prefill, pair.decode)]
    if None in numbers or numbers[0] == numbers[1]:
        return ""
    return f" Their NIXL protocols are {numbers[0]} and {numbers[1]}."


def _hashes(pair: Pair) -> Ruling:
    """Hashes from both logs that differ prove an incompatibility, whatever else is seen."""
    one, other = (facts.live.compatibility_hash for facts in (pair.prefill, pair.decode))
    if one is None or other is None or one == other:
        return Ruling()
    outcome: Outcome = "incompatible" if pair.enforced is not False else "dangerous"
    return Ruling(
        (
            finding(
                "differs-hash",
                "compatibility-hash",
                outcome,
                "The compatibility hashes in the two logs differ.",
                "Look for the factor that differs or is not known below.",
                Shown(one, "engine log"),
                Shown(other, "engine log"),
            ),
        )
    )


def _connectors(pair: Pair) -> Ruling:
    readings = pair.connector_readings()
    found, missing = compare_factor(factors.CONNECTOR, "KV connector", *readings, pair.same)
    shown = found.prefill, found.decode
    if not all(each.known for each in readings):
        return Ruling((), missing, (found,))
    absent = [side for side, each in zip(("prefill", "decode"), readings, strict=True) if each.value is None]
    if absent:
        sentence = f"No KV connector is configured on {' and '.join(absent)}, so no KV moves between them."
        action = "Set --kv-transfer-config on both roles."
        return Ruling(
            (finding("no-connector", factors.CONNECTOR, "incompatible", sentence, action, *shown),),
            (),
            (found,),
        )
    families = [each.family if each else None for each in pair.transfer or (None, None)]
    if None in families:
        names = " and ".join(dict.fromkeys(str(each.value) for each in readings))
        fact = MissingFact("both", factors.CONNECTOR, f"what {names} demands of a pair", "its documentation")
        return Ruling((), () if pair.same.identical else (fact,), (found,))
    if families[0] != families[1]:
        sentence = f"Two kinds of connector: prefill {readings[0].value}, decode {readings[1].value}."
        action = "Use the same connector on both roles."
        return Ruling(
            (finding("connectors-differ", factors.CONNECTOR, "incompatible", sentence, action, *shown),),
            (),
            (found,),
        )
    return Ruling((), (), (Factor(found.id, found.label, "equal", *shown, "the same family"),))
