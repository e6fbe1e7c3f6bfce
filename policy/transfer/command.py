"""Which engine a container starts, and with which words: Kubernetes' `$(NAME)`, launchers, shells."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from policy.transfer.values import Kind

_REFERENCE = re.compile(r"\$\$|\$\(([-._a-zA-Z0-9]+)\)")
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "busybox"})
_MODULES: Mapping[str, Kind] = {
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.cli.main": "vllm",
    "vllm.entrypoints.api_server": "vllm",
    "sglang.launch_server": "sglang",
    "tensorrt_llm.commands.serve": "trtllm",
    "dynamo.vllm": "vllm",
    "dynamo.sglang": "sglang",
    "dynamo.trtllm": "trtllm",
}
_PROGRAMS: Mapping[str, Kind] = {"vllm": "vllm", "sglang": "sglang", "trtllm-serve": "trtllm"}
# Engines that choose their transfer settings themselves where no flag does.
WRAPPERS = ("dynamo.",)
_PLAIN = ("python", "env", "numactl", "taskset", "tini", "dumb-init", "exec", "nice", "vllm", "trtllm")
# The image's own command starts the OpenAI server of vLLM; its arguments follow.
_VLLM_IMAGES = ("vllm-openai",)


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command line. `unread` names references in it whose values cannot be seen."""

    text: str
    source: str
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a container: its text, or None with the reason why it cannot be read.

    `fixed` is true where an equal reason means an equal value.
    """

    text: str | None
    source: str
    reason: str = ""
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """How the engine is started. `program` says why the words of an unread program tell nothing."""

    kind: Kind
    launcher: str
    source: str
    words: tuple[Word, ...]
    program: str | None = None
    subcommand: bool = False
    warnings: tuple[str, ...] = ()


def read_variables(env: Sequence[object]) -> tuple[dict[str, Variable], list[str]]:
    """Variables by name from a container's `env` list, as the kubelet resolves them, and warnings.

    A later entry of a name wins, and `$(NAME)` reads only entries before it. The pod's own fields are kept
    as `{field:status.podIP}`: their values differ from pod to pod, their meaning does not.
    """
    variables: dict[str, Variable] = {}
    warnings: list[str] = []
    for entry in env:
        name = entry.get("name") if isinstance(entry, Mapping) else None
        if not isinstance(entry, Mapping) or not isinstance(name, str) or not name:
            warnings.append("An entry of env has no name and was left out.")
            continue
        variables[name] = _variable(name, entry, variables)
    return variables, warnings


def _variable(name: str, entry: Mapping[str, object], before: Mapping[str, Variable]) -> Variable:
    source = f"env {name}"
    origin = entry.get("valueFrom")
    if not isinstance(origin, Mapping):
        given = entry.get("value")
        text, unread = expand("" if given is None else str(given), before)
        if unread:
            return Variable(None, source, f"it is put together from {', '.join(unread)}")
        return Variable(text, source)
    field = origin.get("fieldRef")
    if isinstance(field, Mapping):
        return Variable(f"{{field:{field.get('fieldPath')}}}", source)
    return Variable(None, source, f"its value comes from {_named(origin)}", fixed=True)


def _named(origin: Mapping[str, object]) -> str:
    """A source of values as text, such as `secretKeyRef hf-token/token`."""
    said = []
    for kind, reference in origin.items():
        parts = [reference.get(each) for each in ("name", "key")] if isinstance(reference, Mapping) else []
        said.append(f"{kind} {'/'.join(str(part) for part in parts if part)}".strip())
    return ", ".join(said) or "an unnamed source"


def read_sources(env_from: Sequence[object]) -> str | None:
    """The ConfigMaps and Secrets of a container's `envFrom` list as text; None where there are none."""
    said = [_named(entry) for entry in env_from if isinstance(entry, Mapping)]
    return " and ".join(said) if said else None


def expand(text: str, variables: Mapping[str, Variable]) -> tuple[str, tuple[str, ...]]:
    """The text with `$(NAME)` replaced and `$$` as `$`, and the names whose values cannot be seen.

    A name that is not in `env` may still be set by an operator, by `envFrom` or by a Service, so it counts
    as not seen although Kubernetes would leave it as it is where nobody sets it.
    """
    unread: list[str] = []

    def replaced(found: re.Match[str]) -> str:
        name = found.group(1)
        if name is None:
            return "$"
        variable = variables.get(name)
        if variable is None or variable.text is None:
            unread.append(name)
            return found.group(0)
        return variable.text

    return _REFERENCE.sub(replaced, text), tuple(dict.fromkeys(unread))


def read_words(place: str, given: object, variables: Mapping[str, Variable]) -> tuple[list[Word], list[str]]:
    """The words of `command` or `args` with references resolved, and warnings about what is no list of text."""
    if given is None:
        return [], []
    if isinstance(given, str) or not isinstance(given, Sequence):
        return [], [f"{place} is not a list of words and was left out."]
    words, warnings = [], []
    for index, item in enumerate(given):
        if not isinstance(item, str):
            warnings.append(f"{place}[{index}] is not text; it was read as {item!s}.")
        text, unread = expand(str(item), variables)
        words.append(Word(text, f"{place}[{index}]", unread))
    return words, warnings


def find_start(command: Sequence[Word], args: Sequence[Word], image: str) -> Start:
    """The engine, its launcher and the words that it reads.

    Shell strings and scripts are not looked into: what they do cannot be told from their text for certain.
    """
    words = [*command, *args]
    for index, word in enumerate(words):
        name = word.text.rsplit("/", 1)[-1]
        if _is_script(name) and (index < len(command) or index == 0):
            reason = f"{word.source} starts a script ({name}), and scripts are not read"
            return Start("unknown", name, word.source, tuple(words), program=reason)
        found = _launcher(words, index, name)
        if found is not None:
            return found
    if command:
        reason = f"command starts {command[0].text}, which is no known engine"
        return Start("unknown", "", command[0].source, tuple(words), program=reason)
    if _repository(image).endswith(_VLLM_IMAGES):
        return Start("vllm", "image entry point", f"image {_repository(image)}", tuple(args), subcommand=True)
    return Start("unknown", "", "image", tuple(args))


def _is_script(name: str) -> bool:
    return name in _SHELLS or name.endswith(".sh")


def _launcher(words: Sequence[Word], index: int, name: str) -> Start | None:
    word, rest = words[index], list(words[index + 1 :])
    following = rest[0].text if rest else ""
    if name == "trtllm-serve":
        kind, launcher, subcommand = _PROGRAMS[name], name, True
        rest = rest[1:] if following == "serve" else rest
    elif name in _PROGRAMS and following == "serve":
        kind, launcher, subcommand = _PROGRAMS[name], f"{name} serve", True
        rest = rest[1:]
    elif word.text == "-m" and following in _MODULES:
        kind, launcher, rest = _MODULES[following], following, rest[1:]
        serves = bool(rest) and rest[0].text == "serve"
        rest = rest[1:] if serves else rest
        subcommand = serves or launcher == "tensorrt_llm.commands.serve"
    else:
        return None
    return Start(
        kind, launcher, word.source, tuple(rest), subcommand=subcommand, warnings=_before(words, index)
    )


def _before(words: Sequence[Word], index: int) -> tuple[str, ...]:
    """What stands before the launcher and may change what it is given."""
    names = [word.text.rsplit("/", 1)[-1] for word in words[:index]]
    others = [name for name in names[:1] if not name.startswith(_PLAIN)]
    return tuple(f"{name} starts the engine; what it adds or changes is not read." for name in others)


def _repository(image: str) -> str:
    return parse_image(image)[0]


def parse_image(image: str) -> tuple[str, str | None, str | None]:
    """Repository, tag and digest of an image reference or of a pod's imageID; None for a part not there."""
    text = image.split("://", 1)[-1]
    if text.startswith("sha256:"):
        return "", None, text
    name, at, digest = text.partition("@")
    head, slash, last = name.rpartition("/")
    last, colon, tag = last.partition(":")
    return f"{head}{slash}{last}", tag if colon and tag else None, digest if at and digest else None
