"""Record what transformers computes in f32, for test_reference.py.

Needs packages that the project itself does not use; in a throw-away environment:

    pip install torch==2.13.0 transformers==5.24.0 gguf==0.19.0 accelerate
    python make_reference.py SmolLM2.gguf

smollm2_reference.npz: `tokens` [5, 32] and, for every position, the 256 most probable next tokens `top`
with their logits `logits`, and `logsumexp` over the whole vocabulary.
tiny_reference.npz: the same of small random networks, all logits, and 16 greedy tokens after them; their
weights are made from a seed, here and in the test.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file
from tiny_networks import NETWORKS, tokens_of, weights_of
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

HERE = Path(__file__).parent
PROMPTS = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\nWhy is the sky blue in the daytime but red when the sun sets?<|im_end|>\n",
    "The French Revolution began in 1789, when the Estates General met at Versailles for the first time in"
    " more than a hundred and seventy years, because the crown could no longer pay its debts.",
    "def fibonacci(n: int) -> int:\n    if n < 2:\n        return n\n"
    "    return fibonacci(n - 1) + fibonacci(n - 2)\n\n\nfor i in range(10):\n    print(i, fibonacci(i))\n",
    '{"name": "get_weather", "arguments": {"city": "Zürich", "unit": "celsius", "days": [1, 2, 3]}}\n'
    '{"name": "search", "arguments": {"query": "colibrí"}}\n',
    "Once upon a time there was a hummingbird who wanted to fly to the moon. 月は遠いです。"
    " It asked the owl, who said: you would need very strong wings, little one.",
)


def record_smollm2(path: Path) -> None:
    """The real model, its weights dequantised to f32."""
    folder = {"gguf_file": path.name}
    tokenizer = AutoTokenizer.from_pretrained(path.parent, **folder)
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, **folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    ids = [tokenizer(prompt, add_special_tokens=False)["input_ids"][:32] for prompt in PROMPTS]
    tokens = torch.tensor(ids)
    assert tokens.shape == (5, 32)
    with torch.no_grad():
        logits = model(tokens).logits
    values, top = logits.topk(256, dim=-1)
    np.savez_compressed(
        HERE / "smollm2_reference.npz",
        tokens=tokens.numpy().astype(np.uint16),
        top=top.numpy().astype(np.uint16),
        logits=values.numpy(),
        logsumexp=torch.logsumexp(logits.double(), -1).numpy(),
    )


def load_tiny(config: dict[str, Any], weights: dict[str, np.ndarray]) -> PreTrainedModel:
    """A network from a folder, as a release would come."""
    with TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config))
        save_file(weights, Path(folder, "model.safetensors"), {"format": "pt"})
        model, report = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
        )
    assert not any(report.values()), report
    return model.eval()


def record_tiny() -> None:
    """Small networks with every mechanism that the real model does not use."""
    arrays = {}
    for name, config in NETWORKS.items():
        model = load_tiny(config, weights_of(name))
        tokens = torch.from_numpy(tokens_of(name))[None]
        with torch.no_grad():
            arrays[f"{name}.logits"] = model(tokens).logits[0].numpy()
            reply = model.generate(
                tokens, max_new_tokens=16, do_sample=False, eos_token_id=None, pad_token_id=0
            )
        arrays[f"{name}.greedy"] = reply[0, tokens.shape[1] :].numpy()
    np.savez_compressed(HERE / "tiny_reference.npz", **arrays)


if __name__ == "__main__":
    record_tiny()
    record_smollm2(Path(sys.argv[1]))
