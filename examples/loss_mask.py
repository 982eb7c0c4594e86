"""Labels for fine-tuning: only what the model itself writes is learnt.

    python examples/loss_mask.py FAMILY TOKENIZER.JSON REQUEST.JSON

prints the conversation of the request as its family writes it, with what is learnt between » and «.
"""

import json
import sys
from pathlib import Path

import tokenizers

import colibri

IGNORED = -100  # the label that PyTorch's cross entropy leaves out


def labelled(family, conversation, tokenizer):
    """The conversation as tokens with offsets, and a label for each: its id, or IGNORED."""
    prompt = family.render(conversation, cue=False)
    spans = colibri.reply_spans(family, prompt)
    tokens = tokenizer.encode(prompt.text, add_special_tokens=False)
    labels = [
        # A token that straddles the border of a reply is not learnt.
        token if any(first <= start and end <= last for first, last in spans) else IGNORED
        for token, (start, end) in zip(tokens.ids, tokens.offsets, strict=True)
    ]
    return prompt.text, tokens.offsets, labels


def main():
    if len(sys.argv) != 4:
        sys.exit("usage: python examples/loss_mask.py FAMILY TOKENIZER.JSON REQUEST.JSON")
    family_id, tokenizer_file, request_file = sys.argv[1:]
    request = json.loads(Path(request_file).read_text(encoding="utf-8"))
    conversation = colibri.conversation_from_openai(request["messages"], request.get("tools"))
    tokenizer = tokenizers.Tokenizer.from_file(tokenizer_file)
    text, offsets, labels = labelled(colibri.load()[family_id], conversation, tokenizer)
    learnt = False
    for (start, end), label in zip(offsets, labels, strict=True):
        if learnt != (label != IGNORED):
            learnt = not learnt
            print("»" if learnt else "«", end="")
        print(text[start:end], end="")
    print("«" if learnt else "")


if __name__ == "__main__":
    main()
