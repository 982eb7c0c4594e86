"""A question to a model on this machine, and the answer as it is written.

    python examples/chat.py MODEL.GGUF "What is the capital of France?"

The model is a .gguf file or a folder with config.json; the engine runs in this process.
"""

import asyncio
import sys

import colibri


async def main():
    if len(sys.argv) != 3:
        sys.exit('usage: python examples/chat.py MODEL.GGUF "QUESTION"')
    path, question = sys.argv[1:]
    messages = [{"role": "user", "content": question}]
    greedy = colibri.SamplingParams(temperature=0)
    family = colibri.load().identify(path)
    events = []
    async with colibri.open_engine(path, family, context=2048) as engine:
        async for event in colibri.chat(engine, family, messages, sampling=greedy, max_tokens=200):
            events.append(event)
            print(getattr(event, "text", ""), end="", flush=True)
    reply = colibri.fold(events)
    print(f"\n({len(reply.content)} characters; {reply.finish_reason})")


asyncio.run(main())
