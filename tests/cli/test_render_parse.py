import json

import pytest

from colibri.protocols.openai_chat import conversation_of
from colibri.registry import load
from colibri.server.served import with_settings
from colibri.server.settings import Settings

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


def test_parse_explains_a_reply(run, request_file):
    arguments = ("parse", "--family", "qwen36", "--request", request_file({"tools": [WEATHER]}), "--explain")
    shown = run(*arguments, input="Use <tool_call> so.\n" + CALL).stdout
    assert "family qwen36, grammar qwen3_xml; declared tools: get_weather" in shown
    assert "'<tool_call>' is text: '<function=' must follow, not 'so.\\n<think>" in shown
    assert "call 0: get_weather is whole" in shown
    assert shown.rstrip().endswith("calls: get_weather; finish reason: tool_calls")
    told = json.loads(run(*arguments, "--json", input=CALL).stdout)
    assert (told["family"], told["grammar"], told["not_calls"]) == ("qwen36", "qwen3_xml", [])
    assert told["rows"][-1]["what"] == "finished"
    assert told["states"]["value"].startswith("value until '</parameter>' -> args")
    assert told["reply"]["tool_calls"][0]["name"] == "get_weather"


@pytest.mark.parametrize(
    ("family", "reply", "reason"),
    [
        ("qwen36", "Hi.", "the reply does not spell what opens a call: '<tool_call>', '<function='"),
        ("smollm2", "Hi.", "this format has no tool calls"),
        ("qwen36", CALL, "the request declares no tools, so nothing is a call"),
    ],
)
def test_parse_explains_that_there_was_no_call(run, family, reply, reason):
    assert reason in run("parse", "--family", family, "--explain", input=reply).stdout


def test_parse_records_a_stream_that_can_be_read_again(run, tmp_path, request_file):
    lines = [{"text": CALL[at : at + 9], "control": None} for at in range(0, len(CALL), 9)]
    lines[-1]["finish_reason"] = "length"
    stream, record = "\n".join(map(json.dumps, lines)), str(tmp_path / "record.jsonl")
    request = request_file({**REQUEST, "tools": [WEATHER], "enable_thinking": False})
    options = ("--family", "qwen36", "--request", request, "--stream", "--record", record)
    seen = run("parse", *options, "--json", input=stream)
    assert seen.exit_code == 0, seen.output
    again = json.loads(run("parse", "--json", record).stdout)
    assert {**again, "tool_calls": []} == {**json.loads(seen.stdout), "tool_calls": []}
    head, *chunks = map(json.loads, (tmp_path / "record.jsonl").read_text().splitlines())
    assert (head["family"], head["finish"], head["tools"]) == ("qwen36", "length", [WEATHER])
    assert head["prompt_end"] == "<think>\n\n</think>\n\n"
    assert "".join(chunk["text"] for chunk in chunks) == CALL
    assert len(chunks) == len(lines)
    assert json.loads(run("parse", "--json", "--start", "reasoning", record).stdout)["reasoning"]


def test_parse_records_without_words(run, tmp_path, request_file):
    record = tmp_path / "record.jsonl"
    request = request_file({"tools": [WEATHER]})
    options = ("--family", "qwen36", "--request", request, "--record", str(record), "--redact")
    run("parse", *options, input=CALL)
    kept = record.read_text()
    assert "Rome" not in kept
    assert "Let me see" not in kept
    assert "Weather of" not in kept
    (call,) = json.loads(run("parse", "--json", str(record)).stdout)["tool_calls"]
    assert (call["name"], json.loads(call["arguments"])) == ("get_weather", {"city": "xxxx"})


def test_a_recording_keeps_halves_of_surrogate_pairs(run, tmp_path):
    record = str(tmp_path / "record.jsonl")
    run("parse", "--family", "smollm2", "--stream", "--record", record, input='"a\\ud83d"\n"\\ude00b"')
    assert [json.loads(line) for line in (tmp_path / "record.jsonl").read_text().splitlines()][1:] == [
        {"text": "a\ud83d", "control": None},
        {"text": "\ude00b", "control": None},
    ]
    assert run("parse", record).exit_code == 0


FALLBACK = ("--family", "olmoe", "--tool-fallback")


def test_tools_in_words_are_rendered_and_read_as_a_server_does(run, request_file, tmp_path):
    path = request_file(REQUEST | {"tools": [WEATHER]})
    served = with_settings(load()["olmoe"], Settings(tool_fallback=True))
    conversation = conversation_of({**REQUEST, "tools": [WEATHER]}, efforts=())
    prompt = run("render", *FALLBACK, path).stdout
    assert prompt == served.render(conversation).text
    assert "You have access to the following functions" in prompt
    reply = "So:<tool_call>get_weather<arg_key>city</arg_key><arg_value>Rome</arg_value></tool_call>"
    recording = tmp_path / "reply"
    options = ("--json", "--request", path, "--record", recording)
    found = json.loads(run("parse", *FALLBACK, *options, input=reply).stdout)
    assert (found["content"], found["reasoning"]) == ("So:", "")
    (call,) = found["tool_calls"]
    assert (call["name"], json.loads(call["arguments"])) == ("get_weather", {"city": "Rome"})
    again = json.loads(run("parse", "--json", "--tool-fallback", str(recording)).stdout)
    assert again["tool_calls"][0]["arguments"] == call["arguments"]
    explained = run("parse", *FALLBACK, "--explain", "--request", path, input=reply).stdout
    assert "not calls" in explained
    assert "get_weather" in explained
    plain = json.loads(run("parse", "--family", "olmoe", "--json", "--request", path, input=reply).stdout)
    assert plain["tool_calls"] == []


def test_the_fallback_changes_nothing_where_the_format_has_tools(run, request_file):
    path = request_file(REQUEST | {"tools": [WEATHER]})
    with_it, without = (
        run("render", "--family", "qwen36", path, *more) for more in (["--tool-fallback"], [])
    )
    assert with_it.stdout == without.stdout
    versus = run("render", "--family", "smollm2", "--diff", "olmoe", "--tool-fallback", path)
    assert "olmoe" in versus.stdout
    assert "You have access" not in "".join(
        line for line in versus.stdout.splitlines() if line.startswith(("+", "-"))
    )
