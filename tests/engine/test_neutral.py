"""The engine runs what a description says; it learns no model family's name."""

import re
from pathlib import Path

import colibri_engine

FOLDER = Path(colibri_engine.__file__).parent
# GGUF files name pre-tokenizers after the models that first used them: a table of the file format.
TABLES = {"pretokenizers.py"}
NAMES = re.compile(
    r"glm|deepseek|kimi|qwen|mimo|inkling|olmo|smollm|minimax|gpt.?oss|gemma|mistral|phi\d", re.IGNORECASE
)


def test_no_source_names_a_family():
    sources = [
        path
        for suffix in ("*.py", "*.pyx", "*.pxd", "*.pyi", "csrc/*.h")
        for path in FOLDER.glob(suffix)
        if path.name not in TABLES
    ]
    assert len(sources) > 20
    found = {path.name: NAMES.findall(path.read_text("utf-8")) for path in sources}
    assert {name: names for name, names in found.items() if names} == {}
