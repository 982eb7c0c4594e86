"""Reasoning, text and tool calls from the completions stream of any server.

    python examples/parse_stream.py http://127.0.0.1:8000 FAMILY REQUEST.JSON

The server continues raw text (vLLM, SGLang, llama.cpp, ...); prompt and parser are colibri's.
"""

import json
import sys
import urllib.request
from pathlib import Path

import colibri

if len(sys.argv) != 4:
    sys.exit("usage: python examples/parse_stream.py SERVER FAMILY REQUEST.JSON")
server, family_id, request_file = sys.argv[1:]
request = json.loads(Path(request_file).read_text(encoding="utf-8"))

family = colibri.load()[family_id]
conversation = colibri.conversation_from_openai(request["messages"], request.get("tools"))
prompt = family.render(conversation)
parser = family.new_parser(conversation.tools, prompt)
# Markers are special tokens to some servers, which leave those out unless they are told not to.
body = {"prompt": prompt.text, "stream": True, "max_tokens": 1000, "skip_special_tokens": False}
query = urllib.request.Request(
    f"{server}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
)

reason = "stop"
with urllib.request.urlopen(query) as stream:
    for line in stream:
        if line.startswith(b"data: {"):
            choice = json.loads(line[len("data: ") :])["choices"][0]
            reason = choice.get("finish_reason") or reason
            for event in parser.feed(choice["text"]):
                print(event)
for event in parser.finish(reason):
    print(event)
