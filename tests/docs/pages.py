"""Markdown pages as runnable scripts: every fenced block is a step.

The first word after the fence is the language, later words are marks:

- `python` runs in one namespace per page; `sh` runs in bash in the page's folder.
- `file=NAME` writes the block there instead (any language).
- `output` must equal what the block before it printed.
- `json` and `toml` must parse; `text` is only read.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import tomllib
from pathlib import Path

from attrs import frozen

FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```\s*$", re.MULTILINE | re.DOTALL)
# What pip builds with is what is installed here; "false" is how its option says no isolation.
OFFLINE = {"PIP_NO_BUILD_ISOLATION": "false", "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
MAKE = re.compile(r"make (serve|test|check|bench|fuzz)\b")


@frozen
class Block:
    """One fenced block: its language, its marks, its text and the line it begins at."""

    language: str
    marks: tuple[str, ...]
    body: str
    line: int

    @property
    def file(self) -> str | None:
        return next((mark[5:] for mark in self.marks if mark.startswith("file=")), None)


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        words = match["info"].split()
        assert words, f"{page.name}: a block needs a language"
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(words[0], tuple(words[1:]), match["body"], line))
    return found


class Run:
    """Runs a page's blocks in order, in a folder of its own."""

    def __init__(
        self, page: Path, folder: Path, *, python: Path, root: Path, replace: dict[str, str]
    ) -> None:
        self.page, self.folder, self.python = page, folder, python
        self.root, self.replace = root, replace
        self.namespace: dict[str, object] = {"__name__": "page"}
        self.printed = ""

    def block(self, block: Block) -> None:
        body = block.body
        for old, new in self.replace.items():
            body = body.replace(old, new)
        if block.file is not None:
            target = self.folder / block.file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(body, encoding="utf-8")
            return
        runner = getattr(self, f"_{block.language}", None)
        assert runner is not None, f"{self.page.name}:{block.line}: no way to run {block.language!r}"
        runner(body, block)

    def _python(self, body: str, block: Block) -> None:
        out = io.StringIO()
        code = compile("\n" * block.line + body, str(self.page), "exec")
        with contextlib.redirect_stdout(out), contextlib.chdir(self.folder):
            exec(code, self.namespace)
        self.printed = out.getvalue()

    def _sh(self, body: str, block: Block) -> None:
        if targets := MAKE.findall(body):
            for target in targets:
                subprocess.run(
                    ["make", "-n", target], cwd=self.root, check=True, capture_output=True, timeout=60
                )
            return
        bin_folder = str(self.python.parent)
        env = os.environ | OFFLINE | {"PATH": bin_folder + os.pathsep + os.environ["PATH"], "NO_COLOR": "1"}
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", body],
            cwd=self.folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, f"{self.page.name}:{block.line}\n{body}\n{done.stdout}\n{done.stderr}"
        self.printed = done.stdout

    def _output(self, body: str, block: Block) -> None:
        assert self.printed.strip() == body.strip(), f"{self.page.name}:{block.line}"

    def _text(self, body: str, block: Block) -> None:
        """Text is only read."""

    def _json(self, body: str, block: Block) -> None:
        json.loads(body)

    def _toml(self, body: str, block: Block) -> None:
        tomllib.loads(body)
