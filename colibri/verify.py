"""Whether a family's prompts are those of a checkpoint's own chat template.

Both render the same corpus of conversations under the same options; whatever is not equal, byte for byte,
is a mismatch. A conversation that both refuse counts as equal, whatever they say about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from colibri import corpus
from colibri.conversation import Conversation, Thinking
from colibri.errors import RenderError, RequestError
from colibri.family import Family
from colibri.rendering import Renderer
from colibri.templates import ChatTemplate

if TYPE_CHECKING:
    from colibri_engine.checkpoint import Checkpoint

__all__ = [
    "Mismatch",
    "Official",
    "Outcome",
    "Trial",
    "compare",
    "is_template",
    "official_of",
    "special_tokens",
    "trials",
]

_GGUF_TOKENS = {
    "bos_token": "bos",
    "eos_token": "eos",
    "unk_token": "unknown",
    "sep_token": "seperator",  # the spelling of the GGUF format
    "pad_token": "padding",
    "cls_token": "cls",
    "mask_token": "mask",
}


@frozen
class Official:
    """A checkpoint's own chat template and the special tokens that it is rendered with, by name."""

    template: ChatTemplate
    special_tokens: Mapping[str, str]


@frozen
class Trial:
    """A conversation to render: its name in the corpus, and what is asked beside it."""

    case: str
    options: str
    conversation: Conversation
    cue: bool

    @property
    def name(self) -> str:
        """The case with its options."""
        return f"{self.case}, {self.options}" if self.options else self.case


@frozen
class Outcome:
    """A prompt's text, or the reason why there is none."""

    text: str | None
    refusal: str | None = None


@frozen
class Mismatch:
    """What the checkpoint's template and the family made of the same trial."""

    trial: Trial
    official: Outcome
    family: Outcome


def trials(family: Family) -> list[Trial]:
    """The corpus under everything that the variant offers: thinking, efforts, past reasoning, no cue."""
    return [
        Trial(name, options, evolve(conversation, thinking=thinking), cue)
        for name, conversation in corpus.conversations().items()
        for options, thinking, cue in _options(family)
        if cue or not conversation.open_last
    ]


def _options(family: Family) -> Iterator[tuple[str, Thinking, bool]]:
    features = family.features
    yield "", Thinking(), True
    yield "no cue", Thinking(), False
    if features.thinking == "switch":
        yield "thinking on", Thinking(enabled=True), True
        yield "thinking off", Thinking(enabled=False), True
    for effort in features.efforts:
        yield f"effort {effort}", Thinking(effort=effort), True
    if features.preserve_thinking:
        yield "past reasoning kept", Thinking(preserve=True), True
        yield "past reasoning dropped", Thinking(preserve=False), True


def compare(family: Family, official: Official, trial: Trial) -> Mismatch | None:
    """Render a trial both ways; None if both give the same text, or both refuse.

    Raises:
        RequestError: the family does not render by a template. FamilyFileError: the checkpoint's template
            is broken.
    """
    ours = family.render
    if not isinstance(ours, Renderer):
        raise RequestError(f"{family.id} is rendered by code, so there is no template to compare")
    theirs = evolve(
        ours,
        template=official.template,
        special_tokens=official.special_tokens,
        keywords={},
        open_keyword=None,
    )
    by_template, by_family = _outcome(theirs, trial), _outcome(ours, trial)
    return None if by_template.text == by_family.text else Mismatch(trial, by_template, by_family)


def _outcome(renderer: Renderer, trial: Trial) -> Outcome:
    try:
        return Outcome(renderer(trial.conversation, cue=trial.cue).text)
    except RenderError as error:
        return Outcome(None, error.message)


def official_of(path: str | PathLike[str], family: Family) -> Official:
    """The chat template and special tokens of a checkpoint, a folder or a .gguf file.

    `path` may also be a template alone, a .jinja file; its special tokens are then the family's.

    Raises:
        colibri_engine.errors.CheckpointError: it cannot be read, or carries no chat template.
    """
    from colibri_engine.checkpoint import open_checkpoint
    from colibri_engine.errors import CheckpointError

    if is_template(path):
        return Official(ChatTemplate(_source(Path(path)), name=Path(path).name), _own_tokens(family))
    with open_checkpoint(path) as checkpoint:
        if checkpoint.chat_template is None:
            raise CheckpointError(f"{path} carries no chat template, so there is nothing to compare with")
        template = ChatTemplate(checkpoint.chat_template, name=f"the chat template of {Path(path).name}")
        return Official(template, special_tokens(checkpoint))


def is_template(path: str | PathLike[str]) -> bool:
    """Whether `path` is a template alone, which does not tell its family."""
    return Path(path).suffix == ".jinja"


def _source(path: Path) -> str:
    from colibri_engine.errors import CheckpointError

    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path}: byte {error.start} is not UTF-8 text") from None


def _own_tokens(family: Family) -> Mapping[str, str]:
    return family.render.special_tokens if isinstance(family.render, Renderer) else {}


def special_tokens(checkpoint: Checkpoint) -> Mapping[str, str]:
    """The spellings that a checkpoint's template is given as variables, such as bos_token."""
    if checkpoint.format == "gguf":
        return _from_gguf(checkpoint.config)
    from colibri_engine.safetensors import read_object

    found: dict[str, str] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        file = checkpoint.path / name
        for key, value in (read_object(file) if file.exists() else {}).items():
            text = value.get("content") if isinstance(value, Mapping) else value
            if key.endswith("_token") and isinstance(text, str):
                found[key] = text
    return found


def _from_gguf(config: Mapping[str, Any]) -> dict[str, str]:
    tokens: Sequence[str] = config.get("tokenizer.ggml.tokens", ())
    found = {}
    for name, key in _GGUF_TOKENS.items():
        token_id = config.get(f"tokenizer.ggml.{key}_token_id")
        if isinstance(token_id, int) and token_id < len(tokens):
            found[name] = tokens[token_id]
    return found
