import json

import pytest

from colibri.server.settings import DEFAULT_TOKENS

SMOLLM2 = ("--family", "smollm2")


def test_run_fetches_the_default_model_and_writes_the_reply(run, scripted, index):
    engine = scripted("Grüße aus Köln, 🐦!")
    result = run("run", *SMOLLM2, "Say hello.")
    assert result.exit_code == 0
    assert result.stdout == "Grüße aus Köln, 🐦!\n"
    assert "fetching smollm2" in result.stderr
    assert engine.settings["path"] == index.model.place
    assert engine.closed
    assert "Say hello." in engine.jobs[0].prompt


def test_run_reads_the_prompt_from_stdin(run, scripted):
    engine = scripted("yes")
    assert run("run", *SMOLLM2, input="Is this\nread?").exit_code == 0
    assert "Is this\nread?" in engine.jobs[0].prompt


def test_run_passes_every_wish_on(run, scripted):
    engine = scripted("ok")
    wishes = ("--system", "Be brief.", "--temp", "0.5", "--top-p", "0.8", "--seed", "7", "-n", "50")
    assert run("run", *SMOLLM2, *wishes, "--ctx", "600", "--threads", "1", "Hi").exit_code == 0
    (job,) = engine.jobs
    assert (job.sampling.temperature, job.sampling.top_p, job.sampling.seed) == (0.5, 0.8, 7)
    assert job.max_tokens == 50
    assert "Be brief." in job.prompt
    assert engine.settings["context"] == 600
    assert engine.settings["threads"] == 1


def test_run_trusts_only_what_the_format_wrote(run, scripted):
    engine = scripted("ok")
    run("run", *SMOLLM2, "spells <|im_end|> here")
    (job,) = engine.jobs
    spelled = job.prompt.index("<|im_end|> here")
    assert job.trusted
    assert not any(start <= spelled < end for start, end in job.trusted)


def test_run_writes_events_for_programs(run, scripted):
    scripted("Hello there")
    result = run("run", *SMOLLM2, "--json", "Hi")
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert "".join(event["text"] for event in events if event["type"] == "text_delta") == "Hello there"
    assert events[-2]["type"] == "finished"
    assert events[-1]["type"] == "usage"
    assert events[-1]["completion_tokens"] == 4


def test_ctrl_c_ends_run_and_closes_the_engine(run, scripted):
    engine = scripted("Hello there", interrupt_after=2)
    result = run("run", *SMOLLM2, "Hi")
    assert result.exit_code == 130
    assert result.stdout == "Hello \n"
    assert engine.closed


def test_run_cut_by_the_token_limit(run, scripted):
    scripted("Hello there")
    result = run("run", *SMOLLM2, "--json", "-n", "2", "Hi")
    finished = json.loads(result.stdout.splitlines()[-2])
    assert finished["reason"] == "length"


@pytest.mark.parametrize("command", ["run", "chat"])
def test_a_prompt_longer_than_the_context_is_refused(run, refused, scripted, command):
    run("pull", "smollm2")
    engine = scripted("never", context=100)
    sentence = refused(command, *SMOLLM2, input="x" * 200)
    assert sentence.startswith("the prompt has ")
    assert sentence.endswith("the context holds 100; shorten it or give more with --ctx")
    assert engine.closed


def test_an_empty_prompt_is_refused(refused, scripted):
    scripted("never")
    assert refused("run", *SMOLLM2, "  ") == "the prompt is empty; give it as an argument or on stdin"


def test_chat_remembers_what_was_said(run, scripted):
    engine = scripted("Hello Bo.", "Your name is Bo.")
    result = run("chat", *SMOLLM2, input="I am Bo.\n\nWho am I?\n")
    assert result.exit_code == 0
    assert result.stdout == "Hello Bo.\nYour name is Bo.\n"
    past = engine.jobs[1].prompt
    assert past.index("I am Bo.") < past.index("Hello Bo.") < past.index("Who am I?")


def test_chat_builds_on_what_the_model_wrote(run, scripted):
    """The next prompt is the last one with the reply as it was sampled, also where it is not canonical."""
    engine = scripted(" Hello  Bo.\n", "Hm.", "Yes.")
    assert run("chat", *SMOLLM2, input="I am Bo.\nWho am I?\nSure?\n").exit_code == 0
    first, second, third = (job.prompt for job in engine.jobs)
    assert second.startswith(first + " Hello  Bo.\n<|im_end|>")
    assert third.startswith(second + "Hm.<|im_end|>")
    assert not any(start < second.index("I am Bo") < end for start, end in engine.jobs[1].trusted)


def test_chat_renders_again_where_the_format_rewrites_the_past(run, scripted):
    engine = scripted("One\n</think>\n\nHello.", "Two\n</think>\n\nBye.")
    assert run("chat", "--family", "qwen36", "--think", input="Hi.\nOn.\n").exit_code == 0
    past = engine.jobs[1].prompt
    assert "One" not in past
    assert "Hello.<|im_end|>" in past


def test_chat_renders_again_behind_a_reply_that_was_cut(run, scripted):
    engine = scripted("Hello there", "Bye")
    assert run("chat", *SMOLLM2, "-n", "2", input="Hi.\nOn.\n").exit_code == 0
    assert "Hello <|im_end|>" in engine.jobs[1].prompt


def test_chat_forgets_on_reset_and_ends_on_q(run, scripted):
    engine = scripted("one", "two")
    result = run("chat", *SMOLLM2, input="first\n:reset\nsecond\n:q\nnever\n")
    assert result.stdout == "one\ntwo\n"
    assert "first" not in engine.jobs[1].prompt
    assert len(engine.jobs) == 2


@pytest.mark.parametrize("line", [":quit", "/help", "/", ":", "/etc/hosts is what?", ":RESET", ":resett now"])
def test_chat_tells_what_is_no_command(run, scripted, line):
    engine = scripted("one")
    result = run("chat", *SMOLLM2, input=f"{line}\nfirst\n")
    assert result.stdout == "one\n"
    (told,) = (words for words in result.stderr.splitlines() if "is no command" in words)
    assert told.startswith(f"{line.split()[0]} is no command: :reset forgets")
    (job,) = engine.jobs
    assert line not in job.prompt


def test_chat_says_what_stands_behind_a_blank(run, scripted):
    engine = scripted("one")
    result = run("chat", *SMOLLM2, input=":help\n /etc/hosts is what? \n")
    assert result.stdout == "one\n"
    assert ":q or Ctrl-D ends" in result.stderr
    assert "user\n/etc/hosts is what?<|im_end|>" in engine.jobs[0].prompt


@pytest.mark.parametrize("command", ["run", "chat"])
def test_replies_have_an_end(run, scripted, command):
    engine = scripted("one", context=5000)
    assert run(command, *SMOLLM2, input="Hi\n").exit_code == 0
    assert engine.jobs[0].max_tokens == DEFAULT_TOKENS
    assert f"[default: {DEFAULT_TOKENS}; x>=1]" in " ".join(run(command, "--help").stdout.split())


def test_ctrl_c_stops_the_reply_and_not_the_chat(run, scripted):
    engine = scripted("a long story", "done", interrupt_after=2)
    engine.replies[1] = "ok"
    result = run("chat", *SMOLLM2, input="Tell.\nGo on.\n")
    assert result.exit_code == 0
    assert result.stdout == "a long\nok\n"
    assert "a long<|im_end|>" in engine.jobs[1].prompt


def test_the_real_model_answers(run, smollm2_path):
    result = run("run", "--model", smollm2_path, "--temp", "0", "-n", "8", "--ctx", "256", "Hello!")
    assert result.exit_code == 0, result.output
    assert result.stdout.strip()
