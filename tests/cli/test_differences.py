"""`verify`, `prefix` and `render --diff`: what differs, for people and for programs."""

import json

import pytest

from colibri_engine.checkpoint import open_checkpoint

CHAT = {
    "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "reasoning_content": "They greet.", "content": "Hello!"},
        {"role": "user", "content": "Name a river."},
        {"role": "assistant", "content": "The Danube.\n"},
        {"role": "user", "content": "Another?"},
    ]
}


@pytest.fixture
def chat_file(tmp_path):
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(CHAT))
    return path


@pytest.fixture
def template(smollm2_path, tmp_path):
    """The real model's chat template in a file of its own: `template(old, new)` with a change."""

    def write(old: str, new: str):
        with open_checkpoint(smollm2_path) as checkpoint:
            source = checkpoint.chat_template
        assert old in source
        path = tmp_path / "chat_template.jinja"
        path.write_text(source.replace(old, new), encoding="utf-8")
        return path

    return write


def test_verify_passes_on_the_real_model(run, smollm2_path):
    result = run("verify", smollm2_path)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("smollm2: all ")
    told = json.loads(run("verify", smollm2_path, "--json").stdout)
    assert told["family"] == "smollm2"
    assert told["renders"] > 50
    assert told["failed"] == []


def test_verify_shows_one_space_too_many(run, template):
    path = template("assistant\n", "assistant \n")
    result = run("verify", path, "--family", "smollm2")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0] == "user (defaults)"
    template_line, family_line, caret = lines[1:4]
    column = caret.index("^")
    assert template_line.startswith("  template: ")
    assert family_line.startswith("  family:   ")
    assert template_line[:column].split(":", 1)[1].strip() == family_line[:column].split(":", 1)[1].strip()
    assert template_line[column] == "·"
    assert family_line[column] == "⏎"
    assert lines[-1].startswith("smollm2: ")
    assert "renders differ" in lines[-1]


def test_verify_tells_programs_where_texts_part(run, template):
    path = template("assistant\n", "assistant \n")
    result = run("verify", path, "--family", "smollm2", "--json")
    assert result.exit_code == 1
    first, *_ = json.loads(result.stdout)["failed"]
    assert first["case"] == "user"
    assert first["template"] != first["family"]
    assert first["at"] > 0


def test_verify_shows_who_refuses(run, template):
    path = template(
        "{% for message in messages %}", "{% for message in messages %}{{ raise_exception('no') }}"
    )
    result = run("verify", path, "--family", "smollm2")
    assert result.exit_code == 1
    assert (
        "  only the template refuses it: chat_template.jinja refuses this conversation: no" in result.stdout
    )
    first, *_ = json.loads(run("verify", path, "--family", "smollm2", "--json").stdout)["failed"]
    assert first["family_refuses"] is None


def test_verify_says_what_it_cannot_compare(refused, template, tmp_path):
    path = template("{% for", "{% fro")
    assert "name it with --family" in refused("verify", path)
    assert refused("verify", path, "--family", "smollm2").startswith("chat_template.jinja, line 1: ")
    assert "no such file" in refused("verify", tmp_path / "none.gguf", "--family", "smollm2")
    assert "no family is called 'zebra'" in refused("verify", path, "--family", "zebra")


def test_verify_shows_its_progress_only_on_a_terminal(run, smollm2_path, monkeypatch):
    assert run("verify", smollm2_path).stderr == ""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setattr("colibri.cli.verify.stderr_is_terminal", lambda: True)
    assert "verifying smollm2" in run("verify", smollm2_path).stderr
    assert run("verify", smollm2_path, "--json").stderr == ""


def test_prefix_tells_where_and_why(run, chat_file):
    result = run("prefix", "--family", "glm52", chat_file)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("turn 1: the next prompt keeps ")
    assert "the format drops the reasoning of turn 1 once turn 2 is there" in lines[0]
    assert lines[1].startswith("  had:  ")
    assert lines[2].startswith("  next: ")
    column = lines[3].index("^")
    assert lines[1][:column].split(":", 1)[1].strip() == lines[2][:column].split(":", 1)[1].strip()
    assert lines[1][column] != lines[2][column]
    assert "strips white space that came with turn 3" in lines[4]


def test_prefix_of_a_chat_that_goes_on(run, chat_file):
    lines = run("prefix", "--family", "kimi_k3", chat_file).stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == ["turn 1", "turn 3"]
    assert all("goes on behind all" in line for line in lines)


def test_prefix_tells_programs(run, chat_file):
    told = json.loads(run("prefix", "--family", "glm52", "--json", chat_file).stdout)
    assert told["family"] == "glm52"
    first, second = told["steps"]
    assert (first["turn"], first["next_turn"]) == (1, 3)
    assert first["kept"] < first["length"]
    assert first["broken"]["cause"] == "reasoning"
    assert first["broken"]["where"]["turn"] == 1
    assert second["broken"]["cause"] == "stripped"
    whole = json.loads(run("prefix", "--family", "kimi_k3", "--json", chat_file).stdout)
    assert [step["broken"] for step in whole["steps"]] == [None, None]


def test_prefix_without_a_reply_to_go_on_from(run):
    body = json.dumps({"messages": CHAT["messages"][:1]})
    assert "no assistant turn" in run("prefix", "--family", "glm52", input=body).stdout


def test_render_diff_between_variants(run, chat_file):
    result = run("render", "--family", "qwen36", "--diff", "qwen38", chat_file)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[:2] == ["--- qwen36", "+++ qwen38"]
    assert "+ They·greet.⏎" in lines
    assert "  Hello!<|im_end|>⏎" in lines
    assert not any(line.startswith("- ") for line in lines)


def test_render_diff_between_options(run, chat_file):
    result = run("render", "--family", "glm52", "--diff", '{"enable_thinking": false}', chat_file)
    assert result.exit_code == 1
    assert '+++ glm52 {"enable_thinking": false}' in result.stdout
    assert "- <|assistant|><think>\n+ <|assistant|><think></think>\n" in result.stdout
    told = json.loads(
        run("render", "--family", "glm52", "--diff", '{"enable_thinking": false}', "--json", chat_file).stdout
    )
    assert not told["equal"]
    for side, options in (("left", {}), ("right", {"enable_thinking": False})):
        whole = "".join("".join(change[side]) for change in told["changes"])
        assert whole == run("render", "--family", "glm52", input=json.dumps(CHAT | options)).stdout


def test_render_diff_of_equal_prompts(run, chat_file):
    result = run("render", "--family", "glm52", "--diff", "glm52", chat_file)
    assert (result.exit_code, result.stdout) == (0, "")


def test_render_diff_says_what_it_does_not_know(refused, chat_file):
    assert "no family is called 'zebra'" in refused("render", "-f", "glm52", "--diff", "zebra", chat_file)
    assert "--diff is not JSON" in refused("render", "-f", "glm52", "--diff", "{", chat_file)
    assert "reasoning_effort" in refused(
        "render", "-f", "glm52", "--diff", '{"reasoning_effort": 5}', chat_file
    )
