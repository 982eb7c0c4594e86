"""docs/api.md says what the code says."""

from __future__ import annotations

import re
from pathlib import Path

from colibri.server.routes import ROUTES
from colibri.server.settings import settings_table

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


def test_every_promise_names_a_test_that_exists():
    promises = PAGE.partition("## Promises")[2].partition("## Beyond")[0]
    rows = [line for line in promises.splitlines() if line.startswith("| ") and "**" not in line][2:]
    assert len(rows) > 50
    for row in rows:
        found = re.fullmatch(r"\| .+ \| `([\w/]+\.py)(?:::(\w+))?` \|", row)
        assert found, row
        source = (ROOT / "tests" / found[1]).read_text(encoding="utf-8")
        name = found[2]
        assert not name or re.search(rf"^(async def|def|class) {name}\b", source, re.MULTILINE), row


def test_every_endpoint_is_listed():
    for route in ROUTES:
        assert f"`{route.method} {route.path}`" in PAGE or f"{route.method} {route.path}`" in PAGE


def test_the_table_of_settings_is_the_codes():
    written = PAGE.partition("<!-- generated: settings -->\n")[2].partition("<!-- end -->")[0]
    assert written == settings_table()
