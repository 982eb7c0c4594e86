"""Every official render of MiniMax-M3, byte for byte; data/README.md tells where they come from."""

import gzip
import json
from pathlib import Path

import pytest

import colibri

FAMILY = colibri.load(["colibri-minimax"])["minimax_m3"]
DATA = Path(__file__).parent / "data"


def lines(name):
    with gzip.open(DATA / name, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


CASES = {case["case"]: case for case in lines("conversations.jsonl.gz")}
ROWS = {f"{number}-{row['case']}-{row['mode']}": row for number, row in enumerate(lines("goldens.jsonl.gz"))}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_official_render(row):
    case = CASES[row["case"]]
    conversation = colibri.conversation_from_openai(
        case["messages"], case["tools"], options=row["kwargs"], open_last=row["mode"] == "continue"
    )
    if "error" in row:
        with pytest.raises(colibri.ColibriError):
            FAMILY.render(conversation, cue=row["mode"] == "gen")
    else:
        assert FAMILY.render(conversation, cue=row["mode"] == "gen").text == row["expected"]
