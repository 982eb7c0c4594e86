"""The generated parts of the documentation are what the families give today."""

import importlib.util
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
SPEC = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
generate = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(generate)


@pytest.fixture(scope="module")
def families():
    return generate.registry()


@pytest.mark.parametrize("page", generate.PAGES, ids=lambda page: page.name)
def test_a_page_is_up_to_date(page, families):
    text = page.read_text(encoding="utf-8")
    assert text == generate.filled(text, families), "run `make docs`"
    assert text.count("<!-- generated: ") == text.count("<!-- end -->") == len(generate.PART.findall(text))


def test_every_variant_has_its_row(families):
    table = (DOCS / "families.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(families)
    for family in families.values():
        (row,) = re.findall(rf"^\| `{family.id}` \|.*$", table, re.MULTILINE)
        assert all(f"`{name}`" in row for name in family.model_types)
        assert all(level in row for level in family.features.efforts)


def test_every_format_has_a_page_with_a_prompt_and_a_reply(families):
    pages = [page for page in generate.PAGES if page.parent.name == "formats" and page.name != "README.md"]
    index = (DOCS / "formats" / "README.md").read_text(encoding="utf-8")
    described = []
    for page in pages:
        assert f"({page.name})" in index
        parts = [what.split() for what, _ in generate.PART.findall(page.read_text(encoding="utf-8"))]
        assert {part[0] for part in parts} == {"variants", "prompt", "reply"}
        described += [name for part in parts if part[0] == "variants" for name in part[1:]]
    assert sorted(described) == sorted(families)


def test_what_is_generated_is_not_left_to_chance(families):
    """The same twice, and no date of today."""
    for kind in ("prompt", "reply"):
        what = f"{kind} gpt_oss call"
        assert generate.generated(what, families) == generate.generated(what, families)
    assert "Current date: 2026-01-02" in generate.generated("prompt gpt_oss chat", families)
