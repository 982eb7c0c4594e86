"""Make tokenizer_cases.json: python make_tokenizer_cases.py LLAMA_CPP/models

llama.cpp (MIT licence) ships vocabularies with test texts and the ids that the models' own tokenizers
give them. Of each vocabulary only what can take part in encoding these texts is kept. Texts that are
not in Unicode form NFC are left out, because llama.cpp does not normalise and the models' own do.
"""

import json
import sys
import unicodedata
from pathlib import Path

from tokenizers.pre_tokenizers import ByteLevel

from colibri_engine.checkpoint import open_checkpoint

NAMES = ("gpt-2", "llama-bpe", "mpt", "qwen2", "qwen35", "refact", "starcoder")


def shorten(models: Path, name: str) -> dict[str, object]:
    path = models / f"ggml-vocab-{name}.gguf"
    with open_checkpoint(path) as checkpoint:
        tokens, kinds, merges = (
            checkpoint.config[f"tokenizer.ggml.{key}"][:] for key in ("tokens", "token_type", "merges")
        )
    texts = path.with_suffix(".gguf.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    lines = path.with_suffix(".gguf.out").read_text().split("\n")
    wanted = [[int(id) for id in line.split()] for line in lines]
    pieces = ByteLevel(add_prefix_space=False, use_regex=False)
    spelled = "\n".join(piece for text in texts for piece, _ in pieces.pre_tokenize_str(text))
    alphabet = set(ByteLevel.alphabet())

    def keep(id: int) -> bool:
        return tokens[id] in alphabet or tokens[id] in spelled or (kinds[id] != 1 and tokens[id].isspace())

    kept = [id for id in range(len(tokens)) if keep(id)]
    short = {id: index for index, id in enumerate(kept)}
    known = {tokens[id] for id in kept}
    return {
        "tokens": [tokens[id] for id in kept],
        "token_type": [kinds[id] for id in kept],
        "merges": [
            merge
            for merge in merges
            if merge.replace(" ", "", 1) in spelled and known.issuperset(merge.split(" "))
        ],
        "cases": [
            {"text": text, "ids": [short[id] for id in ids]}
            for text, ids in zip(texts, wanted, strict=False)
            if unicodedata.is_normalized("NFC", text)
        ],
    }


if __name__ == "__main__":
    cases = {name: shorten(Path(sys.argv[1]), name) for name in NAMES}
    Path(__file__).with_name("tokenizer_cases.json").write_text(json.dumps(cases, ensure_ascii=False) + "\n")
