import json

import pytest

REQUEST = {
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Grüße"}],
}
SMOLLM2_PROMPT = (
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nGrüße<|im_end|>\n<|im_start|>assistant\n"
)
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL = (
    "<think>\nhm\n</think>\n\nLet me see.\n\n"
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>"
)


@pytest.fixture
def request_file(tmp_path):
    def write(body) -> str:
        path = tmp_path / "request.json"
        path.write_text(json.dumps(body), encoding="utf-8")
        return str(path)

    return write


def test_render_writes_the_exact_prompt(run, request_file):
    result = run("render", "--family", "smollm2", request_file(REQUEST))
    assert result.stdout_bytes.decode() == SMOLLM2_PROMPT


def test_render_reads_stdin_and_keeps_line_endings(run):
    body = {"messages": [{"role": "user", "content": "a\r\nb"}]}
    result = run("render", "--family", "smollm2", input=json.dumps(body))
    assert b"a\r\nb<|im_end|>\n" in result.stdout_bytes


def test_render_finds_the_family_of_a_checkpoint(run, request_file, smollm2_path):
    assert run("render", "--model", smollm2_path, request_file(REQUEST)).stdout == SMOLLM2_PROMPT


def test_render_as_json_says_who_wrote_what(run, request_file):
    result = json.loads(run("render", "--family", "smollm2", "--json", request_file(REQUEST)).stdout)
    assert result["family"] == "smollm2"
    assert result["text"] == SMOLLM2_PROMPT
    assert result["start"] is None
    covered = [SMOLLM2_PROMPT[segment["start"] : segment["end"]] for segment in result["segments"]]
    assert "".join(covered) == SMOLLM2_PROMPT
    (user,) = [s for s in result["segments"] if s["path"] == ["messages", 1, "content"]]
    assert SMOLLM2_PROMPT[user["start"] : user["end"]] == "Grüße"


def test_render_heeds_thinking_options_and_cue(run, request_file):
    def prompt(**fields):
        return run("render", "--family", "qwen36", request_file({**REQUEST, **fields})).stdout

    assert prompt(enable_thinking=False) == prompt(chat_template_kwargs={"enable_thinking": False})
    assert prompt(enable_thinking=False) != prompt()
    assert prompt().startswith(prompt(add_generation_prompt=False))
    open_turn = [*REQUEST["messages"], {"role": "assistant", "content": "Well"}]
    assert prompt(messages=open_turn, continue_final_message=True).endswith("Well")


def test_parse_folds_a_reply(run, tmp_path, request_file):
    reply = tmp_path / "reply.txt"
    reply.write_text(CALL, encoding="utf-8")
    arguments = ("parse", "--family", "qwen36", "--request", request_file({"tools": [WEATHER]}), str(reply))
    folded = json.loads(run(*arguments, "--json").stdout)
    assert folded["reasoning"].strip() == "hm"
    assert folded["content"].strip() == "Let me see."
    (call,) = folded["tool_calls"]
    assert call["name"] == "get_weather"
    assert json.loads(call["arguments"]) == {"city": "Rome"}
    assert folded["finish_reason"] == "tool_calls"
    shown = run(*arguments).stdout
    assert "[tool call]\nget_weather {" in shown
    assert "[finish reason]\ntool_calls" in shown


def test_parse_without_tools_calls_nothing(run):
    folded = json.loads(run("parse", "--family", "qwen36", "--json", input=CALL).stdout)
    assert folded["tool_calls"] == []


def test_parse_begins_where_the_prompt_of_the_request_ends(run, request_file):
    arguments = ("parse", "--family", "qwen36", "--json", "--request", request_file(REQUEST))
    folded = json.loads(run(*arguments, input="thought</think>\n\nsaid").stdout)
    assert (folded["reasoning"].strip(), folded["content"].strip()) == ("thought", "said")


def test_parse_writes_events_that_cover_the_reply(run):
    result = run(
        "parse", "--family", "qwen36", "--events", "--json", "--start", "reasoning", input="a</think>b"
    )
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert [event["type"] for event in events][-1] == "finished"
    ends = 0
    for event in sorted(events, key=lambda event: event["start"]):
        assert event["start"] == ends
        ends = event["end"]
    assert ends == len("a</think>b")
    plain = run("parse", "--family", "qwen36", "--events", "--start", "reasoning", input="a</think>b").stdout
    assert len(plain.splitlines()) == len(events)
    assert "reasoning_delta   'a'" in plain


@pytest.mark.parametrize(
    "lines",
    [
        ['"Hel"', '"lo"'],
        ['{"text": "Hel", "control": false}', '{"text": "lo", "control": false, "finish_reason": "length"}'],
        [
            ": a comment",
            'data: {"choices": [{"text": "Hel"}]}',
            "",
            'data: {"choices": [{"text": "lo", "finish_reason": "length"}]}',
            'data: {"choices": [], "usage": {}}',
            "data: [DONE]",
        ],
        [
            'data: {"choices": [{"delta": {"role": "assistant"}}]}',
            'data: {"choices": [{"delta": {"content": "Hello"}}]}',
            'data: {"choices": [{"delta": {}, "finish_reason": "length"}]}',
        ],
    ],
)
def test_parse_reads_recorded_streams(run, lines):
    result = run("parse", "--family", "smollm2", "--stream", "--json", input="\n".join(lines))
    folded = json.loads(result.stdout)
    assert folded["content"] == "Hello"
    assert folded["finish_reason"] == ("length" if "length" in "".join(lines) else "stop")
