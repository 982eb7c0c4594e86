"""A small engine that speaks the serve line protocol, for tests of those who talk to one.

    python engine.py [--version 1|2] [--slots N] [--delay SECONDS] [FAULT] [/WORD-TO-FIND-IT-BY]

It has no model: a reply is the prompt's characters from its last one backwards, over and over, one byte a
token, never an end. It imports nothing of the project. A fault is one of FAULTS, planted on purpose.
"""

from __future__ import annotations

import os
import selectors
import sys
import time

WORDS = ("v=2", "ids=1", "echo=1", "pin=1", "seed=", "spans=", "logprobs=", "stop_ids=")
FAULTS = {
    "wrong-ready": "announces itself with another line",
    "silent-exit": "exits before it is ready, without a word",
    "load-nomem": "says that memory is short",
    "load-io": "says that a file cannot be read",
    "load-format": "says that a file is damaged",
    "load-unsupported": "says that it cannot run the model",
    "no-accept": "sends DATA before ACCEPT",
    "second-accept": "accepts a job twice",
    "wrong-count": "sends more bytes than DATA says",
    "no-done": "never ends a job",
    "no-stop": "ignores STOP",
    "no-cancel": "ignores CANCEL",
    "wrong-tokens": "counts one token too many in DONE",
    "wrong-prompt": "counts other prompt tokens in DONE than in ACCEPT",
    "wrong-limit": "says nothing of the limit that ended a job",
    "too-long": "goes on after max_tokens",
    "slot-mixing": "keeps one conversation for all slots",
    "random": "gives another reply every time",
    "garbage": "writes what is no line of the protocol",
    "bad-frame": "writes a DATA line that makes no sense",
    "unknown-exit": "exits at a line that it does not know",
    "bad-request-exit": "exits at a request that makes no sense",
    "no-context-limit": "accepts what does not fit",
    "no-drain": "exits at the end of its input without finishing",
    "no-exit": "stays after the end of its input",
    "newline-blind": "reads a prompt only up to its first newline",
    "old-words": "uses version 2 for jobs that do not ask for it",
    "any-words": "passes over words of SUBMIT that it does not know",
    "no-token-ids": "leaves tok= out of version 2",
    "exits-in-prefill": "exits after ACCEPT",
    "exits-in-decode": "exits after three tokens",
    "closes-output": "closes its output after ACCEPT",
}
CONTEXT = 512


class Job:
    def __init__(self, id: int, slot: int, prompt: bytes, limit: int, version: int) -> None:
        self.id, self.slot, self.prompt, self.version = id, slot, prompt, version
        self.limit = min(limit, CONTEXT - len(prompt))
        self.made = 0
        self.accepted = False
        self.due = 0.0


class Engine:
    def __init__(self, version: int, slots: int, delay: float, fault: str) -> None:
        self.version, self.slots, self.delay, self.fault = version, slots, delay, fault
        self.jobs: dict[int, Job] = {}
        self.buffer = b""
        self.ending = False
        self.shared = b""

    def write(self, data: str | bytes) -> None:
        view = memoryview(data.encode() if isinstance(data, str) else data)
        while view:
            view = view[os.write(1, view) :]

    def main(self) -> int:
        if self.fault == "silent-exit":
            return 3
        if self.fault.startswith("load-"):
            self.write(f"LOAD_FAIL kind={self.fault[5:]} the model is {self.fault[5:]}\n")
            return 1
        self.write("READY\n" if self.fault == "wrong-ready" else "\x01\x01READY\x01\x01\n")
        proto = f"proto=2 slots={self.slots} ids=0 sampling=temperature,top_p,seed " * (self.version == 2)
        self.write(f"CAPS vision=0 {proto}max_len={CONTEXT}\n")
        self.write("HWINFO 2 1.0 1.0 0 0.0 none|none\nSTAT 0 0.00 0.0 0.01\n")
        with selectors.DefaultSelector() as selector:
            selector.register(0, selectors.EVENT_READ)
            while True:
                wait = self.patience()
                if not self.ending and selector.select(wait):
                    data = os.read(0, 65536)
                    self.buffer += data
                    self.ending = not data
                    self.read()
                elif self.ending and wait:
                    time.sleep(wait)
                if self.ending and (self.fault == "no-drain" or not self.jobs):
                    if self.fault == "no-exit":
                        time.sleep(60)
                    return 0
                for job in list(self.jobs.values()):
                    if job.due <= time.monotonic():
                        self.step(job)

    def patience(self) -> float | None:
        if not self.jobs:
            return None
        return max(0.0, min(job.due for job in self.jobs.values()) - time.monotonic())

    def read(self) -> None:
        while b"\n" in self.buffer:
            line, rest = self.buffer.split(b"\n", 1)
            words = line.decode().split()
            if words and words[0] == "SUBMIT":
                spans = [int(word[6:]) for word in words if word.startswith("spans=")]
                size = int(words[3]) + sum(spans)
                if len(rest) <= size:
                    return
                payload, rest = rest[:size], rest[size + 1 :]
                self.buffer = rest
                self.submit(words, payload[: int(words[3])])
                continue
            self.buffer = rest
            if words and words[0] in ("STOP", "CANCEL"):
                self.end_early(words[0], int(words[1]))
            elif self.fault == "unknown-exit":
                sys.exit(4)

    def submit(self, words: list[str], prompt: bytes) -> None:
        id, options = int(words[1]), [word for word in words if "=" in word]
        version = 2 if "v=2" in options and self.version == 2 else 1
        try:
            slot, limit = int(words[2]), int(words[4])
            float(words[5])
        except ValueError:
            if self.fault == "bad-request-exit":
                sys.exit(5)
            return self.write(f"ERROR {id} BAD_REQUEST a number is none\n")
        if any(not word.startswith(WORDS) for word in options) and self.fault != "any-words":
            return self.write(f"ERROR {id} BAD_REQUEST a word is unknown\n")
        if not prompt:
            return self.write(f"ERROR {id} EMPTY_PROMPT\n")
        if len(prompt) > CONTEXT and self.fault != "no-context-limit":
            return self.write(f"ERROR {id} CONTEXT_EXCEEDED {len(prompt)} {CONTEXT}\n")
        if any(job.slot == slot >= 0 for job in self.jobs.values()):
            return self.write(f"ERROR {id} SLOT_BUSY\n")
        if self.fault == "newline-blind":
            prompt = prompt.split(b"\n")[0]
        if self.fault == "random":
            prompt += os.urandom(3).hex().encode()
        self.shared = prompt
        self.jobs[id] = Job(id, slot, prompt, limit, version)
        return None

    def end_early(self, word: str, id: int) -> None:
        job = self.jobs.get(id)
        if job is None:
            self.write(f"ERROR {id} NOT_FOUND\n")
        elif word == "STOP" and self.fault != "no-stop":
            self.done(job)
        elif word == "CANCEL" and self.fault != "no-cancel":
            del self.jobs[id]
            self.write(f"ERROR {id} CANCELLED\n")

    def step(self, job: Job) -> None:
        second = job.version == 2 or self.fault == "old-words"
        if not job.accepted:
            job.accepted = True
            if self.fault != "no-accept":
                self.write(f"ACCEPT {job.id} {len(job.prompt)}{' cached=0' * second}\n")
            if self.fault == "second-accept":
                self.write(f"ACCEPT {job.id} {len(job.prompt)}\n")
            if self.fault == "exits-in-prefill":
                sys.exit(6)
            if self.fault == "closes-output":
                os.close(1)
                time.sleep(60)
        elif job.made < job.limit + (2 if self.fault == "too-long" else 0):
            self.token(job, second)
        elif self.fault != "no-done":
            self.done(job)
        else:
            job.due = time.monotonic() + 60
            return
        job.due = time.monotonic() + self.delay

    def token(self, job: Job, second: bool) -> None:
        prompt = self.shared if self.fault == "slot-mixing" else job.prompt
        data = prompt[-1 - job.made % len(prompt) :][:1]
        tail = f" tok={data[0]} ctl=0" if second and self.fault != "no-token-ids" else ""
        job.made += 1
        if self.fault == "bad-frame" and job.made == 2:
            tail = " what is this"
        if self.fault == "garbage" and job.made == 2:
            self.write(b"\xff\x00 oops\n")
        data *= 2 if self.fault == "wrong-count" else 1
        self.write(f"DATA {job.id} 1{tail}\n".encode() + data + b"\n")
        if self.fault == "exits-in-decode" and job.made == 3:
            sys.exit(7)

    def done(self, job: Job) -> None:
        del self.jobs[job.id]
        made = job.made + (self.fault == "wrong-tokens")
        limited = job.made >= job.limit and self.fault != "wrong-limit"
        prompt = len(job.prompt) + (self.fault == "wrong-prompt")
        tail = f" reason={'length' if limited else 'stop'} cached=0" if job.version == 2 else ""
        self.write(f"DONE {job.id} STAT {made} 10.0 0.0 0.01 {prompt} {limited:d}{tail}\n")


def main(arguments: list[str]) -> int:
    given = {"--version": "2", "--slots": "2", "--delay": "0.001"}
    fault = ""
    words = iter(arguments)
    for word in words:
        if word in given:
            given[word] = next(words)
        elif word in FAULTS:
            fault = word
        else:
            assert word.startswith("/"), f"{word} is no fault: {', '.join(FAULTS)}"
    return Engine(int(given["--version"]), int(given["--slots"]), float(given["--delay"]), fault).main()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
