"""Chat templates render as Hugging Face renders them, and refuse with a reason and a place."""

import json
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri.errors import FamilyFileError, RenderError, Where
from colibri.templates import ChatTemplate

USER = [{"role": "user", "content": "hi"}]
PLAIN = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
    "{% if add_generation_prompt %}<a>{% endif %}"
)


def template(source, **kwargs):
    return ChatTemplate(source, name="test.jinja", **kwargs)


def render(source, messages=USER, tools=None, **kwargs):
    return template(source).render(messages, tools, **kwargs)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        # the newline after a block goes, and the blanks before it
        ("a\n  {% if true %}\nb\n  {% endif %}\nc\n", "a\nb\nc"),
        (
            "{% for x in [1, 2, 3, 4] %}{% if x == 2 %}{% continue %}{% endif %}"
            "{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}",
            "13",
        ),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}!", "hi!"),
        ("{% set x = 1 %}{% generation %}{% set x = 2 %}{% endgeneration %}{{ x }}", "1"),
        (
            "{{ dict(b=1, a=2) | tojson }}{{ dict.fromkeys('ab') | tojson }}",
            '{"b": 1, "a": 2}{"a": null, "b": null}',
        ),
        ("{{ {'é': '<&>\\n'} | tojson }}", '{"é": "<&>\\n"}'),
        ("{{ {'b': 1, 'a': [1, 2]} | tojson(sort_keys=true, separators=(',', ':')) }}", '{"a":[1,2],"b":1}'),
        ("{{ [1] | tojson(indent=2) }}", "[\n  1\n]"),
        ("{{ 'é' | tojson(ensure_ascii=true) }}", '"\\u00e9"'),
        (
            "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}"
            "{{ ns.n }}",
            "1",
        ),
        ("{{ documents is none }}{{ tools is none }}{{ nothing is defined }}", "TrueTrueFalse"),
        ("{{ '<b>' }}{{ '&' | safe }}", "<b>&"),
    ],
)
def test_the_sandbox_is_hugging_faces(source, text):
    assert render(source) == text


def test_the_clock_can_be_frozen():
    frozen = template("{{ strftime_now('%d %b %Y') }}", clock=lambda: datetime(2026, 1, 2))
    assert frozen.render(USER) == "02 Jan 2026"


def test_cue_special_tokens_and_options():
    source = "{{ bos_token }}{{ x }}{% if add_generation_prompt %}cue{% endif %}"
    special = {"bos_token": "<s>"}
    assert render(source, special_tokens=special, x=1) == "<s>1"
    assert render(source, special_tokens=special, bos_token="<t>", add_generation_prompt=True) == "<t>cue"


def test_templates_of_one_folder_share_macros():
    shared = {"shared.jinja": "{% macro turn(m) %}<{{ m.role }}>{{ m.content }}{% endmacro %}"}
    source = "{% from 'shared.jinja' import turn %}{{ turn(messages[0]) }}"
    assert template(source, loader=shared).render(USER) == "<user>hi"
    assert (
        template("{% import 'shared.jinja' as s %}{{ s.turn(messages[0]) }}", loader=shared).render(USER)
        == "<user>hi"
    )


def test_prepare_rearranges_the_messages():
    def reverse(messages, variables):
        return messages[::-1] if variables["backwards"] else messages

    turns = [{"role": "user", "content": "1"}, {"role": "user", "content": "2"}]
    prepared = template(PLAIN, prepare=reverse)
    assert prepared.render(turns, backwards=True) == "<user>2</><user>1</>"
    assert prepared.render(turns, backwards=False) == "<user>1</><user>2</>"


def last(content, **more):
    return [*USER, {"role": "assistant", "content": content, **more}]


PART = {"type": "text", "text": "b"}


@pytest.mark.parametrize(
    ("source", "messages", "text"),
    [
        (PLAIN, last("so"), "<user>hi</><assistant>so"),
        (PLAIN, last("so "), "<user>hi</><assistant>so "),
        (PLAIN.replace("m.content", "m.content | trim"), last("so"), "<user>hi</><assistant>so"),
        (PLAIN.replace("m.content", "m.content | trim"), last("so \n"), "<user>hi</><assistant>so"),
        (PLAIN, last(""), "<user>hi</><assistant>"),
        (PLAIN, last("CONTINUE_FINAL_MESSAGE_TAG x"), "<user>hi</><assistant>CONTINUE_FINAL_MESSAGE_TAG x"),
        (
            "{% for m in messages %}{% for p in m.content %}{{ p.text or p }}|{% endfor %}{% endfor %}",
            last([PART, {"type": "image"}]),
            "h|i|b",
        ),
    ],
)
def test_the_last_message_can_stay_open(source, messages, text):
    before = json.dumps(messages)
    assert render(source, messages, continue_final_message=True) == text
    assert json.dumps(messages) == before


def test_another_field_can_stay_open():
    source = "{% for m in messages %}{{ m.thinking }}|{{ m.content }}{% endfor %}"
    messages = [{"role": "assistant", "content": "c", "thinking": "t", "reasoning_content": "t"}]
    assert render(source, messages, continue_final_message="reasoning_content") == "t"


@pytest.mark.parametrize(
    ("source", "messages"),
    [
        (PLAIN, []),
        (PLAIN, last(None)),
        (PLAIN, [*USER, {"role": "assistant"}]),
        (PLAIN, last([])),
        (PLAIN, last([{"type": "image"}])),
        ("{{ messages[0].content }}", last("so")),
        ("{{ messages[-1].content | upper }}", last("so")),
    ],
)
def test_what_cannot_stay_open_is_refused(source, messages):
    with pytest.raises(RenderError) as caught:
        render(source, messages, continue_final_message=True)
    assert caught.value.where == (Where(turn=len(messages) - 1) if messages else None)


@pytest.mark.parametrize(
    ("source", "line", "reason"),
    [
        ("a\n{% if x %}\n", 2, "Unexpected end of template"),
        ("a\n\n{{ x y }}", 3, "expected token 'end of print statement'"),
        ("{% do x %}", 1, "unknown tag 'do'"),
        ("\n{{ x | nofilter }}", 2, "No filter named 'nofilter'"),
    ],
)
def test_a_broken_template_names_file_and_line(source, line, reason):
    broken = template(source)  # nothing is compiled yet
    for use in (broken.compile, lambda: broken.render(USER)):
        with pytest.raises(FamilyFileError, match=f"^test.jinja, line {line}: ") as caught:
            use()
        assert reason in caught.value.message


def test_a_broken_or_missing_import_names_its_file():
    source = "{% import 'other.jinja' as o %}"
    with pytest.raises(FamilyFileError, match=r"^other.jinja, line 2: "):
        template(source, loader={"other.jinja": "\n{% if %}"}).render(USER)
    with pytest.raises(FamilyFileError, match=r"test.jinja imports 'other.jinja'"):
        template(source, loader={"more.jinja": ""}).render(USER)


THREE = [
    {"role": "user", "content": "a"},
    {"role": "critic", "content": "b"},
    {"role": "user", "content": None},
]


@pytest.mark.parametrize(
    ("source", "reason", "turn"),
    [
        (
            "{% for m in messages %}{% if m.role == 'critic' %}{{ raise_exception('no critics') }}"
            "{% endif %}{% endfor %}",
            "no critics",
            1,
        ),
        ("{% for m in messages %}{{ m.content + '' }}{% endfor %}", "TypeError: ", 2),
        (
            "{% for m in messages[::-1] %}{% for c in m.content %}{{ c }}{% endfor %}{% endfor %}",
            "TypeError: ",
            2,
        ),
        (
            "{% macro one(m) %}{{ m.nothing.at.all }}{% endmacro %}"
            "{% for m in messages %}{{ one(m) }}{% endfor %}",
            "has no attribute 'nothing'",
            0,
        ),
        ("{% for m in messages %}{% endfor %}{{ raise_exception('too few') }}", "too few", None),
        ("{{ 1 / 0 }}", "ZeroDivisionError: ", None),
        ("{{ messages.append(1) }}", "unsafe", None),
        ("{{ messages.__class__.__mro__ }}", "unsafe", None),
        ("{{ namespace(_x=1) }}", "underscore", None),
        ("{% set n = namespace() %}{% set n._x = 1 %}", "underscore", None),
        ("{% for i in range(1000000) %}{% endfor %}", "OverflowError: ", None),
    ],
)
def test_a_refusal_gives_the_templates_reason_and_the_turn(source, reason, turn):
    with pytest.raises(RenderError, match=r"^test.jinja refuses this conversation: ") as caught:
        render(source, THREE)
    assert reason in caught.value.message
    assert caught.value.where == (None if turn is None else Where(turn=turn))


@pytest.mark.parametrize("name", ["messages", "tools"])
def test_options_cannot_replace_the_conversation(name):
    with pytest.raises(RenderError, match="leave them out"):
        template(PLAIN).render(USER, **{name: []})


CODE = st.lists(
    st.sampled_from(
        ["{{", "}}", "{%", "%}", "{#", "#}", " 7*7 ", "messages", "raise_exception('x')", "\n", "-", "a"]
    )
).map("".join)


@given(CODE, CODE)
def test_text_is_never_executed(content, name):
    messages = [{"role": name, "content": content}]
    assert render(PLAIN, messages) == f"<{name}>{content}</>"
    assert render("{{ tools | tojson }}", messages, [{"d": content}]) == json.dumps(
        [{"d": content}], ensure_ascii=False
    )
