"""docs/errors.md lists every code that a client can be answered, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import colibri
from colibri.protocols.openai_errors import ENGINE_FAULTS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
ROWS = re.findall(
    r"^\| (\d{3}) \| `(\w+)` \| ", PAGE.partition("## What the server answers")[2], re.MULTILINE
)


def sources():
    for package in ("protocols", "server"):
        for path in (Path(colibri.__file__).parent / package).glob("*.py"):
            yield ast.parse(path.read_text(encoding="utf-8"))


def codes_of_refusals() -> set[str]:
    """What stands for `code` or `kind` where an error for clients is made."""
    return {
        word.value.value
        for tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for word in node.keywords
        if word.arg in ("code", "kind") and isinstance(word.value, ast.Constant) and word.value.value
    }


def texts() -> set[str]:
    return {
        node.value
        for tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_every_code_of_the_server_is_listed():
    listed = {code for _, code in ROWS}
    assert len(listed) == len(ROWS)
    made = {code for code in codes_of_refusals() if re.fullmatch(r"[a-z]+(_[a-z]+)+|forbidden", code)}
    assert made <= listed
    assert listed <= texts()


def test_codes_of_engine_faults_have_their_status():
    assert {code: int(status) for status, code in ROWS if code in ENGINE_FAULTS} == {
        code: status for code, (status, _) in ENGINE_FAULTS.items()
    }
