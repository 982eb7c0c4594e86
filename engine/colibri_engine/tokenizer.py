"""Text to token ids and back: byte-level BPE, with special spellings recognised only where trusted.

The vocabulary comes from a GGUF file's metadata or from tokenizer.json; `tokenizers` does the BPE.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import tokenizers
from attrs import frozen
from tokenizers import models, normalizers, pre_tokenizers

from .checkpoint import Checkpoint
from .errors import CheckpointError, JobError
from .gguf import LazyArray
from .pretokenizers import PRETOKENIZERS
from .safetensors import read_object

__all__ = ["Tokenizer", "load_tokenizer"]

# Token types of GGUF: unknown, control and user-defined ones are spelled out, not merged.
_NORMAL: Final = 1
_ADDED: Final = (2, 3, 4)


@frozen
class _Added:
    """A token with a spelling of its own, beside BPE.

    single_word: only between characters that are no word characters. lstrip, rstrip: it swallows the
    white space before or after it.
    """

    text: str
    id: int
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False

    @property
    def is_blank(self) -> bool:
        """Runs of blanks, which some vocabularies add, are text; every other one is a control token."""
        return self.text.isspace()


class Tokenizer:
    """Ids, bytes and control tokens of one model. Immutable, and safe to use from several threads.

    size: one more than the highest token id. bos, eos: the tokens that begin a text and that end a
    generation, as the checkpoint says.
    """

    def __init__(
        self,
        ordinary: tokenizers.Tokenizer,
        added: Sequence[_Added],
        *,
        size: int,
        bos: int | None,
        eos: frozenset[int],
    ) -> None:
        """Combine what `load_tokenizer` read.

        ordinary: the BPE, whose vocabulary has the blank ones of `added` and no other of them.
        """
        blank = [token for token in added if token.is_blank]
        ordinary.add_tokens(
            [
                tokenizers.AddedToken(
                    token.text,
                    single_word=token.single_word,
                    lstrip=token.lstrip,
                    rstrip=token.rstrip,
                    normalized=False,
                )
                for token in blank
            ]
        )
        self._ordinary = ordinary
        self._markers = {token.text: token for token in added if not token.is_blank}
        self._spellings = {token.id: token.text.encode() for token in added}
        longest_first = sorted(self._markers, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._control = frozenset(token.id for token in self._markers.values())
        self.size = size
        self.bos = bos
        self.eos = eos

    def encode(self, text: str, trusted: Iterable[tuple[int, int]] | None = None) -> list[int]:
        """The ids of a prompt; no begin token is added.

        trusted: half-open character spans in which the spelling of a control token stands for the
        token; elsewhere it is ordinary text. None trusts the whole text. Spans never cut BPE: what
        lies between two control tokens is encoded as one run.

        Raises:
            JobError: a span is not within the text, or the text holds half a surrogate pair.
        """
        ids: list[int] = []
        at = 0
        for start, end, token_id in self._find(text, _stretches(text, trusted)):
            ids += self.encode_ordinary(text[at : max(at, start)])
            ids.append(token_id)
            at = end
        ids += self.encode_ordinary(text[at:])
        return ids

    def encode_ordinary(self, text: str) -> list[int]:
        """The ids of text in which nothing is a control token.

        Raises:
            JobError: the text holds half a surrogate pair.
        """
        if not text:
            return []
        try:
            encoding = self._ordinary.encode(text, add_special_tokens=False)
        except TypeError:
            raise JobError("the prompt holds half a surrogate pair, which is no Unicode text") from None
        ids: list[int] = encoding.ids
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes of a token, perhaps part of a code point; a control token's are its spelling.

        An id without a token, such as a padding row of the embedding, has none.
        """
        spelling = self._spellings.get(token_id)
        if spelling is not None:
            return spelling
        token = self._ordinary.id_to_token(token_id)
        if token is None:
            return b""
        table = _byte_table()
        try:
            return bytes([table[character] for character in token])
        except KeyError:
            return token.encode()

    def text(self, token_id: int) -> str:
        """The token for people to read; bytes that are no whole code point become U+FFFD."""
        return self.token_bytes(token_id).decode(errors="replace")

    def decode(self, token_ids: Iterable[int]) -> bytes:
        """The bytes that these tokens stand for.

        Raises:
            JobError: an id is none of the vocabulary.
        """
        ids = list(token_ids)
        for token in ids:
            if not 0 <= token < self.size:
                raise JobError(f"tokens: {token} is no token; the vocabulary has those below {self.size}")
        return b"".join(map(self.token_bytes, ids))

    def is_control(self, token_id: int) -> bool:
        """Whether this is a control token, which no ordinary text encodes to."""
        return token_id in self._control

    def _find(self, text: str, stretches: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
        """The markers in the stretches, leftmost-longest, with the white space that they swallow."""
        for begin, stop in stretches:
            for match in self._pattern.finditer(text, begin, stop):
                marker = self._markers[match[0]]
                start, end = match.span()
                neighbours = text[max(start - 1, 0) : start] + text[end : end + 1]
                if marker.single_word and re.search(r"\w", neighbours):
                    continue
                if marker.lstrip:
                    start = len(text[:start].rstrip())
                if marker.rstrip:
                    end = len(text) - len(text[end:].lstrip())
                yield start, end, marker.id


def _stretches(text: str, trusted: Iterable[tuple[int, int]] | None) -> list[tuple[int, int]]:
    """The spans in order, those that touch merged."""
    if trusted is None:
        return [(0, len(text))]
    merged: list[tuple[int, int]] = []
    for start, end in sorted(trusted):
        if not 0 <= start <= end <= len(text):
            raise JobError(f"trusted: [{start}, {end}) is no span of a text of {len(text)} characters")
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


@cache
def _byte_table() -> Mapping[str, int]:
    """GPT-2's alphabet: printable Latin-1 bytes stand for themselves, the others for U+0100 onwards."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in own]
    return {chr(byte): byte for byte in own} | {chr(0x100 + i): byte for i, byte in enumerate(moved)}


def load_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """The tokenizer of a checkpoint.

    Raises:
        CheckpointError: there is none, it is damaged, or it is of a kind that is not supported.
    """
    if checkpoint.format == "gguf":
        return _from_gguf(checkpoint.path, checkpoint.config)
    return _from_json(checkpoint.path, checkpoint.config)


def _from_gguf(path: Path, config: Mapping[str, Any]) -> Tokenizer:
    def table(key: str, kind: type) -> Sequence[Any]:
        values = config.get(f"tokenizer.ggml.{key}")
        if not isinstance(values, LazyArray) or values.kind is not kind:
            raise CheckpointError(f"{path}: tokenizer.ggml.{key} must be an array of {kind.__name__}")
        items: Sequence[Any] = values[:]
        return items

    model, pre = config.get("tokenizer.ggml.model"), config.get("tokenizer.ggml.pre")
    if model != "gpt2":
        raise CheckpointError(f"{path}: tokenizer.ggml.model is {model!r:.80}; only gpt2 is supported")
    rules = PRETOKENIZERS.get(pre) if isinstance(pre, str) else None
    if rules is None:
        known = ", ".join(PRETOKENIZERS)
        raise CheckpointError(f"{path}: tokenizer.ggml.pre is {pre!r:.80}; supported are {known}")
    tokens, kinds, merges = table("tokens", str), table("token_type", int), table("merges", str)
    if len(kinds) != len(tokens):
        raise CheckpointError(
            f"{path}: tokenizer.ggml.token_type has {len(kinds)} entries for {len(tokens)} tokens"
        )
    vocabulary = {token: id for id, token in enumerate(tokens) if kinds[id] == _NORMAL}
    added = [_Added(token, id) for id, token in enumerate(tokens) if kinds[id] in _ADDED and token]
    pairs = _ordinary_bpe(f"{path}: tokenizer.ggml", vocabulary, merges, added)
    bpe = models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=rules.ignore_merges)
    ordinary = tokenizers.Tokenizer(bpe)
    splits = [pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated") for pattern in rules.patterns]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    ordinary.pre_tokenizer = pre_tokenizers.Sequence([*splits, byte_level])
    if rules.normalizer == "NFC":
        ordinary.normalizer = normalizers.NFC()
    ends = _token_ids(path, config, *(f"tokenizer.ggml.{key}_token_id" for key in ("eos", "eot", "eom")))
    begins = _token_ids(path, config, "tokenizer.ggml.bos_token_id")
    return Tokenizer(ordinary, added, size=len(tokens), bos=min(begins, default=None), eos=frozenset(ends))


def _ordinary_bpe(
    where: str, vocabulary: dict[str, int], merges: Iterable[Any], added: Iterable[_Added]
) -> list[tuple[str, str]]:
    """Take the control tokens out of a BPE vocabulary and put the blank ones in.

    Returns:
        The merges, as pairs, without those that could spell a control token.
    """
    control = set()
    for token in added:
        if token.is_blank:
            vocabulary[token.text] = token.id
        else:
            control.add(token.text)
            vocabulary.pop(token.text, None)
    pairs = []
    for merge in merges:
        pair = merge.split(" ") if isinstance(merge, str) else merge
        try:
            left, right = pair
            joined = left + right
            if joined in vocabulary and left in vocabulary and right in vocabulary:
                pairs.append((left, right))
            elif control.isdisjoint((left, right, joined)):
                raise CheckpointError(f"{where}: the merge {merge!r:.80} is not of tokens in the vocabulary")
        except (TypeError, ValueError):
            raise CheckpointError(f"{where}: the merge {merge!r:.80} is no pair of tokens") from None
    return pairs


def _from_json(path: Path, config: Mapping[str, Any]) -> Tokenizer:
    file = path / "tokenizer.json"
    document = read_object(file)
    model, decoder = document.get("model"), document.get("decoder")
    if not isinstance(model, dict) or model.get("type") != "BPE" or "ByteLevel" not in json.dumps(decoder):
        raise CheckpointError(f"{file}: only byte-level BPE is supported")
    vocabulary, merges = model.get("vocab"), model.get("merges")
    entries = document.get("added_tokens") or []
    if not isinstance(vocabulary, dict) or not all(type(id) is int for id in vocabulary.values()):
        raise CheckpointError(f"{file}: model.vocab must map tokens to ids")
    if not isinstance(entries, list) or not isinstance(merges, list):
        raise CheckpointError(f"{file}: added_tokens and model.merges must be lists")
    added = [_added(file, entry) for entry in entries]
    size = 1 + max([*vocabulary.values(), *(token.id for token in added)], default=-1)
    model["merges"] = _ordinary_bpe(f"{file}: model", vocabulary, merges, added)
    unwanted = dict.fromkeys(("post_processor", "truncation", "padding"))
    try:
        ordinary = tokenizers.Tokenizer.from_str(json.dumps(document | unwanted | {"added_tokens": []}))
    except Exception as error:  # `tokenizers` raises nothing more precise
        raise CheckpointError(f"{file} cannot be used: {error}") from None
    generation = path / "generation_config.json"
    settings = [read_object(generation), config] if generation.exists() else [config]
    begins, ends = (
        next(filter(None, (_token_ids(path, setting, key) for setting in settings)), [])
        for key in ("bos_token_id", "eos_token_id")
    )
    return Tokenizer(ordinary, added, size=size, bos=min(begins, default=None), eos=frozenset(ends))


def _added(file: Path, entry: Any) -> _Added:
    """One entry of tokenizer.json's added_tokens."""
    if isinstance(entry, dict):
        text, token_id = entry.get("content"), entry.get("id")
        if isinstance(text, str) and text and type(token_id) is int and token_id >= 0:
            flags = {name: entry.get(name) is True for name in ("single_word", "lstrip", "rstrip")}
            return _Added(text, token_id, **flags)
    raise CheckpointError(f"{file}: an added token must have a content and an id, not {entry!r:.80}")


def _token_ids(path: Path, config: Mapping[str, Any], *keys: str) -> list[int]:
    """The ids that these keys name, each one id, a list of ids, or absent."""
    ids: list[int] = []
    for key in keys:
        value = config.get(key)
        values = value if isinstance(value, list) else [] if value is None else [value]
        if not all(type(item) is int and item >= 0 for item in values):
            raise CheckpointError(f"{path}: {key} must be a token id or a list of them, not {value!r:.80}")
        ids += values
    return ids
