"""How a GGUF file's `tokenizer.ggml.pre` splits text before BPE: rows of data.

A name stands for regular expressions, applied one after another, each isolating its matches in the
pieces that the one before left; the names are llama.cpp's, the expressions those of the models' own
tokenizers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from attrs import frozen

__all__ = ["PRETOKENIZERS", "PreTokenizer"]


@frozen
class PreTokenizer:
    """patterns: in order of application. normalizer: the Unicode form that text is brought into first.

    ignore_merges: a piece that is itself a token is that token, whatever the merges would give.
    """

    patterns: tuple[str, ...]
    normalizer: Literal["NFC"] | None = None
    ignore_merges: bool = False


_DIGIT: Final = r"\p{N}"
_WORDS: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LINES: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?%(letters)s+|%(digits)s"
    r"| ?[^\s%(word)s\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2: Final = _LINES % {"letters": r"\p{L}", "digits": r"\p{N}", "word": r"\p{L}"}
_QWEN35: Final = _LINES % {"letters": r"[\p{L}\p{M}]", "digits": r"\p{N}", "word": r"\p{L}\p{M}"}
_LLAMA3: Final = _LINES % {"letters": r"\p{L}", "digits": r"\p{N}{1,3}", "word": r"\p{L}"}

PRETOKENIZERS: Final[Mapping[str, PreTokenizer]] = {
    "gpt-2": PreTokenizer((_WORDS,)),
    "llama-bpe": PreTokenizer((_LLAMA3,), ignore_merges=True),
    "mpt": PreTokenizer((_WORDS,), normalizer="NFC"),
    "olmo": PreTokenizer((_WORDS,), normalizer="NFC"),
    "qwen2": PreTokenizer((_QWEN2,), normalizer="NFC"),
    "qwen35": PreTokenizer((_QWEN35,), normalizer="NFC"),
    "refact": PreTokenizer((_DIGIT, _WORDS)),
    "smollm": PreTokenizer((_DIGIT, _WORDS)),
    "starcoder": PreTokenizer((_DIGIT, _WORDS)),
}
