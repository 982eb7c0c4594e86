"""An engine that writes the frames which a prompt spells, for tests of those who read them.

    python scripted.py LOG

A prompt holds, after its last `<<<` and up to `>>>`, a JSON list of frames of version 1: `ID` in them stands
for the job's id, their characters for bytes, and null says to wait for STOP before the next one. Every line
that is read goes to LOG.
"""

from __future__ import annotations

import json
import sys


def script(prompt: str, id: str) -> list[bytes | None]:
    frames = json.loads(prompt.rpartition("<<<")[2].partition(">>>")[0])
    return [frame and (frame.replace("ID", id) + "\n").encode("latin-1") for frame in frames]


def main(path: str) -> None:
    given, out = sys.stdin.buffer, sys.stdout.buffer
    waiting: dict[str, list[bytes | None]] = {}
    with open(path, "w") as log:
        print("\x01\x01READY\x01\x01\nCAPS max_len=4096 slots=2 logprobs=32 echo=1\nSTAT 0 0 0 0", flush=True)
        for line in given:
            print(line.decode().strip(), file=log, flush=True)
            kind, id, *rest = line.decode().split()
            if kind == "SUBMIT":
                waiting[id] = script(given.read(int(rest[1]) + 1).decode(), id)
            elif kind == "CANCEL":
                waiting.pop(id, None)
                out.write(f"ERROR {id} CANCELLED\n".encode())
            frames = waiting.get(id, [])
            while frames and (frame := frames.pop(0)) is not None:
                out.write(frame)
            out.flush()


if __name__ == "__main__":
    main(sys.argv[1])
