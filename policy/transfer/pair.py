"""One prefill and one decode engine as the rules see them, and what a rule gives back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from policy.transfer.connectors import Connector, Connectors, read_connectors
from policy.transfer.factors import Release, release_of
from policy.transfer.facts import EngineFacts
from policy.transfer.findings import Factor, Finding, MissingFact, Shown
from policy.transfer.models import ModelGeometry
from policy.transfer.readings import BUILD, WEIGHTS, Reading, connector_name
from policy.transfer.sameness import Sameness, compare_engines
from policy.transfer.values import EVERYTHING, shown


@dataclass(frozen=True, slots=True)
class Ruling:
    """What the rules of one kind found."""

    findings: tuple[Finding, ...] = ()
    missing: tuple[MissingFact, ...] = ()
    factors: tuple[Factor, ...] = ()


@dataclass(frozen=True, slots=True)
class Pair:
    """The two engines with what is read from both."""

    prefill: EngineFacts
    decode: EngineFacts
    same: Sameness
    connectors: tuple[Connectors, Connectors]

    @property
    def transfer(self) -> tuple[Connector, Connector] | None:
        """The two connectors that move KV; None where one is not there or may be another."""
        one, other = self.connectors
        if one.hidden is not None or other.hidden is not None:
            return None
        return (one.transfer, other.transfer) if one.transfer and other.transfer else None

    @property
    def family(self) -> str | None:
        """The family of both connectors; None where they differ or are not known."""
        found = self.transfer
        return found[0].family if found and found[0].family == found[1].family else None

    @property
    def families(self) -> frozenset[str | None]:
        """The families of the connectors that are known, on either side."""
        found = [each.transfer for each in self.connectors if each.hidden is None]
        return frozenset(each.family for each in found if each is not None)

    @property
    def pulls(self) -> bool | None:
        """Whether both move KV by the decode's reads; None where they differ or are not known."""
        found = self.transfer
        return found[0].mode == "pull" if found and found[0].mode == found[1].mode else None

    @property
    def enforced(self) -> bool | None:
        """Whether the side that checks the compatibility hash refuses another one; None if not known."""
        if self.family is None or self.transfer is None:
            return None
        if self.family != "nixl":
            return False
        prefill, decode = self.transfer
        return decode.enforces if self.pulls else decode.enforces and prefill.enforces

    @property
    def release(self) -> Release | None:
        """The release of both; None where they differ or are not known."""
        one, other = (release_of(facts.live.version) for facts in (self.prefill, self.decode))
        if one is None or other is None:
            return one or other if self.same.states[BUILD] == "equal" else None
        return one if one == other else None

    @property
    def geometry(self) -> ModelGeometry | None:
        """The model's geometry from either side: a pair serves one model. None where the two differ."""
        one, other = self.prefill.geometry, self.decode.geometry
        return (one or other) if one is None or other is None or one.layers == other.layers else None

    def connector_readings(self) -> tuple[Reading, Reading]:
        """The connector's name on both sides."""
        return connector_name(self.connectors[0]), connector_name(self.connectors[1])

    def flag(self, name: str) -> tuple[Shown, Shown]:
        """A flag as a page shows it, on both sides."""
        return _flag(self.prefill, name), _flag(self.decode, name)


def read_pair(prefill: EngineFacts, decode: EngineFacts) -> Pair:
    """Reads what the rules need of both."""
    connectors = read_connectors(prefill.arguments), read_connectors(decode.arguments)
    same = compare_engines(prefill, decode)
    if same.states[WEIGHTS] == "equal":
        # The same weights have the same config.json, whichever side it was read from.
        prefill = replace(prefill, geometry=prefill.geometry or decode.geometry)
        decode = replace(decode, geometry=decode.geometry or prefill.geometry)
    return Pair(prefill, decode, same, connectors)


def join(rulings: Iterable[Ruling]) -> Ruling:
    """All findings, missing facts (each once) and factors, in order."""
    given = list(rulings)
    missing = dict.fromkeys(fact for each in given for fact in each.missing)
    return Ruling(
        tuple(found for each in given for found in each.findings),
        tuple(missing),
        tuple(factor for each in given for factor in each.factors),
    )


def _flag(facts: EngineFacts, name: str) -> Shown:
    hidden = facts.arguments.hidden(name)
    if hidden is not None:
        return Shown("not known", hidden)
    found = facts.arguments.flags.get(name)
    return Shown("not given", "no flag") if found is None else Shown(shown(found.value), found.source)


def unread(facts: EngineFacts) -> str | None:
    """Why no flag of an engine can be read, if none can."""
    found = [each for each in facts.arguments.opaque if each.covers == EVERYTHING]
    return f"{found[0].source}: {found[0].reason}" if found else None
