"""Every variant renders what its vendor's own template or encoder renders; see data/goldens/README.md."""

import gzip
import json
from datetime import datetime
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

import colibri
from colibri.errors import ConversationError, RenderError

GOLDENS = Path(__file__).parent.parent / "data" / "goldens"
CASES = json.loads((GOLDENS / "conversations.json").read_text("utf-8"))
VARIANTS = sorted(path.name.removesuffix(".jsonl.gz") for path in GOLDENS.glob("*.jsonl.gz"))
PLUGINS = {"gpt_oss": "colibri-gpt-oss", "gemma4": "colibri-gemma4", "minimax_m3": "colibri-minimax"}

# The message that an official refusal without options is about; ours says so.
REFUSED_TURN = {"args_bad_json": 1, "args_array": 1, "system_mid": 2, "bad_role": 0, "developer_off": 0}
NOW = datetime(2026, 1, 2, 3, 4, 5)  # when the official renders were made
CLOCK = {"gpt_oss": {"strftime_now": NOW.strftime}}


@pytest.fixture(scope="module")
def families():
    return colibri.load()


def rows(variant):
    with gzip.open(GOLDENS / f"{variant}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def rendered(family, row):
    case = CASES[row["case"]]
    conversation = colibri.conversation_from_openai(
        case["messages"],
        case["tools"],
        options=row["kwargs"] | CLOCK.get(family.id, {}),
        open_last=row["mode"] == "continue",
    )
    return family.render(conversation, cue=row["mode"] == "gen")


def difference(family, row):
    """Why our render is not the official one; None if it is."""
    try:
        text = rendered(family, row).text
    except (RenderError, ConversationError) as error:
        if "error" not in row:
            return f"refused: {error.message}"
        turn = None if error.where is None else error.where.turn
        if not row["kwargs"] and turn != REFUSED_TURN.get(row["case"], turn):
            return f"refused for turn {turn}: {error.message}"
        return None
    if "error" in row:
        return f"rendered, but the official template refuses: {row['error']}"
    if text == row["expected"]:
        return None
    pairs = zip(text, row["expected"], strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(text), len(row["expected"])))
    return f"at {at}: {text[at - 40 : at + 40]!r} instead of {row['expected'][at - 40 : at + 40]!r}"


@pytest.mark.parametrize("variant", VARIANTS)
def test_official_renders(variant, families):
    if variant in PLUGINS:
        try:
            distribution(PLUGINS[variant])
        except PackageNotFoundError:
            pytest.skip(f"{PLUGINS[variant]} is not installed")
    wrong = [
        f"{row['case']} {row['mode']} {row['kwargs']}: {why}"
        for row in rows(variant)
        if (why := difference(families[variant], row)) is not None
    ]
    assert not wrong, f"{len(wrong)} rows differ:\n" + "\n".join(wrong[:10])
