"""What an engine is started with, read from a container of a pod spec. Never raises on bad text: it warns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from policy.transfer.command import (
    WRAPPERS,
    Start,
    Variable,
    find_start,
    read_sources,
    read_variables,
    read_words,
)
from policy.transfer.flags import TABLES, is_kept
from policy.transfer.tokens import ReadFlags, read_flags
from policy.transfer.values import ANY_VARIABLE, EVERYTHING, JsonValue, Kind, Opaque, Sourced

_SIDECARS = ("routing-sidecar", "pd-sidecar", "routing-proxy", "istio-proxy")
_ENGINE_NAMES = ("vllm", "modelserver", "model-server", "sglang", "trtllm", "engine", "server", "main")
_ACCELERATORS = ("/gpu", "/gaudi", "/tpu", "/neuron", "/xpu", "/npu", "gpu.intel.com", "nvidia.com/mig")


@dataclass(frozen=True, slots=True)
class EngineArguments:
    """How one engine is started.

    `flags` are keyed by the engine's long name with dashes, other spellings folded in; an absent flag has the
    engine's default unless `hidden` says otherwise. `env` holds the variables that rules read, and no others.
    `raw` and `raw_env` are the text as it stands, kept to compare two engines whose settings cannot be read.
    They are not shown.
    """

    kind: Kind
    launcher: str
    kind_source: str
    flags: Mapping[str, Sourced]
    env: Mapping[str, Sourced]
    opaque: tuple[Opaque, ...]
    warnings: tuple[str, ...]
    image: str
    raw: tuple[str, ...] = field(default=(), repr=False)
    raw_env: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def value(self, flag: str) -> JsonValue:
        """The value of a flag that was given, else None."""
        found = self.flags.get(flag)
        return None if found is None else found.value

    def hidden(self, name: str) -> str | None:
        """Why a flag or variable may have a value that cannot be read; None where what is seen is all.

        A flag on the command line beats one in a file, so a file hides only flags that were not given.
        """
        for each in self.opaque:
            if each.covers == name:
                return f"{each.source}: {each.reason}"
        if name in self.flags or name in self.env:
            return None
        rest = (EVERYTHING, ANY_VARIABLE) if is_kept(name) else (EVERYTHING,)
        for each in self.opaque:
            if each.covers in rest:
                return f"{each.source}: {each.reason}"
        return None

    @property
    def readable(self) -> bool:
        """Whether every setting was read."""
        return not self.opaque and self.kind != "unknown"


def read_engine(
    *,
    command: Sequence[object] | None,
    args: Sequence[object] | None,
    env: Sequence[object] | None,
    image: str,
    env_from: Sequence[object] | None = None,
    kind: Kind | None = None,
) -> EngineArguments:
    """Reads one container as the kubelet and the engine would. Rules: research/telemetry.md 3.4.

    `env` and `env_from` are the lists of the container. `kind` names the engine where something else than the
    command line tells it, such as the prefix of its metrics. Shell strings, scripts, files and values from
    Secrets or ConfigMaps are listed as opaque, never guessed.
    """
    variables, warnings = read_variables(env or ())
    command_words, wrong_command = read_words("command", command, variables)
    args_words, wrong_args = read_words("args", args, variables)
    start = find_start(command_words, args_words, image)
    known: Kind = start.kind if start.kind != "unknown" else kind or "unknown"
    opaque = _hidden_variables(variables, read_sources(env_from or ()))
    warnings = [*warnings, *wrong_command, *wrong_args]
    flags, hidden, said = _read_flags(start, known)
    opaque.extend(hidden)
    warnings.extend(said)
    source = start.source if start.kind != "unknown" else ("told by its metrics" if kind else start.source)
    return EngineArguments(
        kind=known,
        launcher=start.launcher,
        kind_source=source,
        flags=flags,
        env=_kept(variables),
        opaque=tuple(opaque),
        warnings=tuple(warnings),
        image=image,
        raw=tuple(word.text for word in (*command_words, *args_words)),
        raw_env=tuple((name, each.text or each.reason) for name, each in sorted(variables.items())),
    )


def _read_flags(start: Start, kind: Kind) -> tuple[dict[str, Sourced], list[Opaque], list[str]]:
    if start.program is not None:
        said = f"{start.program}: every flag of the engine is unknown."
        return {}, [Opaque(EVERYTHING, start.program, start.source, fixed=True)], [said]
    read = read_flags(start.words, TABLES[kind])
    flags = read.flags
    opaque, warnings = list(read.opaque), [*start.warnings, *read.warnings]
    warnings.extend(_place_model(start, read, flags, opaque))
    opaque.extend([*_files(flags, kind), *_wrapped(start, flags)])
    if start.kind == "unknown":
        reason = "the image's own entry point decides what is started and may add flags"
        opaque.append(Opaque(EVERYTHING, reason, "image", fixed=True))
        warnings.append("No known engine is started by command or args; the image's own entry point decides.")
    return flags, opaque, warnings


def read_container(container: Mapping[str, object], *, kind: Kind | None = None) -> EngineArguments:
    """`read_engine` of one container of a pod spec, as the API server returns it."""
    return read_engine(
        command=_list(container.get("command")),
        args=_list(container.get("args")),
        env=_list(container.get("env")),
        env_from=_list(container.get("envFrom")),
        image=str(container.get("image") or ""),
        kind=kind,
    )


def engine_container(pod_spec: Mapping[str, object]) -> str | None:
    """The name of the container that runs the engine, or None where that cannot be told.

    Decode pods also hold the routing sidecar (research/router-policy.md 6.1), so the first container is not
    it. Looked at in order: what the command starts, an accelerator, a usual name, being the only one left.
    """
    found = pod_spec.get("containers")
    containers = [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []
    left = [each for each in containers if not _is_sidecar(each)]
    for fits in (_starts_engine, _has_accelerator, _has_usual_name, lambda _: True):
        names = [each.get("name") for each in left if fits(each)]
        if len(names) == 1 and isinstance(names[0], str):
            return names[0]
    return None


def _list(found: object) -> list[object] | None:
    return found if isinstance(found, list) else None


def _is_sidecar(container: Mapping[str, object]) -> bool:
    said = f"{container.get('name')} {container.get('image')}"
    return any(word in said for word in _SIDECARS)


def _starts_engine(container: Mapping[str, object]) -> bool:
    return read_container(container).kind != "unknown"


def _has_accelerator(container: Mapping[str, object]) -> bool:
    resources = container.get("resources")
    if not isinstance(resources, Mapping):
        return False
    asked = [resources.get(each) for each in ("limits", "requests")]
    names = [str(name) for each in asked if isinstance(each, Mapping) for name in each]
    return any(word in name for name in names for word in _ACCELERATORS)


def _has_usual_name(container: Mapping[str, object]) -> bool:
    return container.get("name") in _ENGINE_NAMES


def _kept(variables: Mapping[str, Variable]) -> dict[str, Sourced]:
    return {
        name: Sourced(variable.text, variable.source)
        for name, variable in variables.items()
        if variable.text is not None and is_kept(name)
    }


def _hidden_variables(variables: Mapping[str, Variable], elsewhere: str | None) -> list[Opaque]:
    hidden = [
        Opaque(name, variable.reason, variable.source, fixed=variable.fixed)
        for name, variable in variables.items()
        if variable.text is None and is_kept(name)
    ]
    if elsewhere is not None:
        hidden.append(Opaque(ANY_VARIABLE, f"{elsewhere} may set it", "envFrom", fixed=True))
    return hidden


def _place_model(start: Start, read: ReadFlags, flags: dict[str, Sourced], opaque: list[Opaque]) -> list[str]:
    """Puts a positional model among the flags; warnings about words that belong nowhere."""
    words = list(read.positional)
    warnings: list[str] = []
    if start.subcommand and words:
        word = words.pop(0)
        if "model" in flags:
            warnings.append("The model is given as a word and as --model; the engine reads --model.")
        elif word.unread:
            opaque.append(Opaque("model", f"its value comes from {', '.join(word.unread)}", word.source))
        else:
            flags["model"] = Sourced(word.text, f"{word.source} model")
    elif start.subcommand and "model" not in flags and read.unsure:
        names = ", ".join(f"--{name}" for name in read.unsure)
        opaque.append(Opaque("model", f"it may be the word after {names}", start.source, fixed=True))
        warnings.append(f"No model was found; a flag unknown here may have taken it: {names}.")
    warnings.extend(f"{word.source} belongs to no flag and was left out." for word in words)
    return warnings


def _files(flags: Mapping[str, Sourced], kind: Kind) -> list[Opaque]:
    return [
        Opaque(
            EVERYTHING,
            f"the file {flags[name].value} may set it",
            flags[name].source,
            path=str(flags[name].value),
        )
        for name in sorted(TABLES[kind].files)
        if name in flags
    ]


def _wrapped(start: Start, flags: Mapping[str, Sourced]) -> list[Opaque]:
    if not start.launcher.startswith(WRAPPERS) or "kv-transfer-config" in flags:
        return []
    return [
        Opaque("kv-transfer-config", f"{start.launcher} chooses a connector itself", start.source, fixed=True)
    ]
