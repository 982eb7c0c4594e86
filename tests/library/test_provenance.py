"""Every character of a prompt knows its origin, and no value is ever taken for the format."""

from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colibri.errors import RenderError
from colibri.provenance import Segment, scoped_spans, trusted_spans
from colibri.templates import ChatTemplate
from colibri.tracing import TracedEnvironment

from .segments import check

# Templates of these tests write Greek capitals and digits of their own, values hold Latin letters, so that
# a character tells whose it is whatever has been done to it.
MESSAGES = [
    {"role": "system", "content": "one two\nthree"},
    {
        "role": "user",
        "content": ' x"y ',
        "n": 7,
        "f": 2.5,
        "on": True,
        "list": ["p", "q"],
        "map": {"k": "v"},
        "greek": {"κ": "v"},
    },
    {"role": "assistant", "content": "<b>see www.abc.de & go</b>", "empty": ""},
]
TOOLS = [
    {"type": "function", "function": {"name": "fun", "description": "does\tit", "parameters": {"z": {}}}}
]
SPECIAL = {"bos_token": "<bos>"}


def trace(source, messages=MESSAGES, tools=TOOLS, **kwargs):
    template = ChatTemplate(source, name="test.jinja", clock=lambda: datetime(2026, 1, 2))
    arguments = {"special_tokens": SPECIAL, "opt": "opt", **kwargs}
    text, segments = template.trace(messages, tools, **arguments)
    assert text == template.render(messages, tools, **arguments)
    return text, segments


def checked(source, messages=MESSAGES, tools=TOOLS, **kwargs):
    text, segments = trace(source, messages, tools, **kwargs)
    variables = {"messages": messages, "tools": tools, "kwargs": {"opt": "opt", **kwargs}, **SPECIAL}
    check(text, segments, variables)
    for s in segments:
        part = text[s.start : s.end]
        if s.kind == "format":
            assert not any("a" <= c.lower() <= "z" for c in part), (source, text, s)
    return text, segments


def told(source, **kwargs):
    """The segments of a render as text, kind, path and offset."""
    text, segments = checked(source, **kwargs)
    return [(text[s.start : s.end], s.kind, s.path, s.offset) for s in segments]


CONTENT = ("messages", 0, "content")
EXACT = [
    ("ΑΒ{{ 'Γ' }}Δ", [("ΑΒΓΔ", "format", (), None)]),
    ("{{ bos_token }}Α", [("<bos>", "special", ("bos_token",), 0), ("Α", "format", (), None)]),
    ("{{ opt }}", [("opt", "value", ("kwargs", "opt"), 0)]),
    ("{{ messages[0].content[4:7] }}", [("two", "value", CONTENT, 4)]),
    ("{{ messages[0]['content'][-1] }}", [("e", "value", CONTENT, 12)]),
    ("{{ messages[0].content[::-2][:2] }}", [("e", "value", CONTENT, 12), ("r", "value", CONTENT, 10)]),
    ("{{ messages[1].content | trim }}", [('x"y', "value", ("messages", 1, "content"), 1)]),
    ("{{ messages[1].content.lstrip() }}", [('x"y ', "value", ("messages", 1, "content"), 1)]),
    ("{{ messages[0].content.split('\n')[1] }}", [("three", "value", CONTENT, 8)]),
    ("{{ messages[0].content.split()[-1] }}", [("three", "value", CONTENT, 8)]),
    ("{{ messages[0].content.rsplit(none, 1)[0] }}", [("one two", "value", CONTENT, 0)]),
    ("{{ messages[0].content.splitlines()[1] }}", [("three", "value", CONTENT, 8)]),
    ("{{ messages[0].content.partition(' ')[2] }}", [("two\nthree", "value", CONTENT, 4)]),
    ("{{ messages[0].content.rpartition(' ')[0] }}", [("one", "value", CONTENT, 0)]),
    ("{{ messages[0].content.removeprefix('one') }}", [(" two\nthree", "value", CONTENT, 3)]),
    ("{{ messages[0].content.removesuffix('hree') }}", [("one two\nt", "value", CONTENT, 0)]),
    ("{{ messages[0].content[:3].upper() }}", [("ONE", "value", CONTENT, None)]),
    ("{{ messages[0].content[:3].lower() }}", [("one", "value", CONTENT, 0)]),
    (
        "{{ messages[0].content[:7] | replace(' ', 'Σ') }}",
        [("one", "value", CONTENT, 0), ("Σ", "format", (), None), ("two", "value", CONTENT, 4)],
    ),
    (
        "{{ messages[1].list | join('Σ') }}",
        [
            ("p", "value", ("messages", 1, "list", 0), 0),
            ("Σ", "format", (), None),
            ("q", "value", ("messages", 1, "list", 1), 0),
        ],
    ),
    (
        "{{ 'Α' ~ messages[1].n }}{{ messages[1].n + 1 }}",
        [("Α", "format", (), None), ("7", "value", ("messages", 1, "n"), None), ("8", "computed", (), None)],
    ),
    ("{{ messages[1].f }}", [("2.5", "value", ("messages", 1, "f"), None)]),
    ("{{ messages[1].on }}", [("True", "computed", (), None)]),
    ("{{ messages[1].map }}", [("{'k': 'v'}", "value", ("messages", 1, "map"), None)]),
    ("{{ messages[1].map | tojson }}", [('{"k": "v"}', "value", ("messages", 1, "map"), None)]),
    (
        "{{ messages[1].list[0] | tojson }}",
        [
            ('"', "value", ("messages", 1, "list", 0), None),
            ("p", "value", ("messages", 1, "list", 0), 0),
            ('"', "value", ("messages", 1, "list", 0), None),
        ],
    ),
    ("{{ messages[1].content | tojson }}", [('" x\\"y "', "value", ("messages", 1, "content"), None)]),
    (
        "{% for k, v in messages[1].map.items() %}{{ k }}{{ v }}{% endfor %}",
        [
            ("k", "value", ("messages", 1, "map", "k", "@key"), 0),
            ("v", "value", ("messages", 1, "map", "k"), 0),
        ],
    ),
    (
        "{{ {'Α': tools[0].function.name, 'Β': tools[0].function.parameters} | tojson }}",
        [('{"Α": "fun", "Β": {"z": {}}}', "derived", ("tools", 0, "function"), None)],
    ),
    ("{{ messages[0].role.center(10) }}", [("  system  ", "derived", ("messages", 0, "role"), None)]),
    (
        "{{ 'Α{}Β{:>4}{}'.format(opt, opt, 5) }}",
        [
            ("Α", "format", (), None),
            ("opt", "value", ("kwargs", "opt"), 0),
            ("Β", "format", (), None),
            (" opt", "derived", ("kwargs", "opt"), None),
            ("5", "computed", (), None),
        ],
    ),
    (
        "{{ 'Α%sΒ%%%4s%d' % (opt, opt, 5) }}",
        [
            ("Α", "format", (), None),
            ("opt", "value", ("kwargs", "opt"), 0),
            ("Β%", "format", (), None),
            (" opt", "derived", ("kwargs", "opt"), None),
            ("5", "computed", (), None),
        ],
    ),
    ("{{ strftime_now('%Y') }}", [("2026", "computed", (), None)]),
    ("{{ loop is defined }}{{ 1 + 1 }}", [("False2", "computed", (), None)]),
]


@pytest.mark.parametrize(("source", "expected"), EXACT)
def test_each_character_has_its_origin(source, expected):
    assert told(source) == expected


FILTERS = {
    "abs": "7 | abs",
    "attr": "messages[0] | attr('role')",
    "batch": "messages[1].list | batch(2, 'Α') | map('join', 'Β') | join",
    "capitalize": "messages[0].content | capitalize",
    "center": "opt | center(9)",
    "count": "messages | count",
    "d": "nothing | d('Α' + opt)",
    "default": "nothing | default(opt)",
    "dictsort": "messages[1].map | dictsort | join('Α')",
    "e": "messages[2].content | e",
    "escape": "'Α' + (messages[2].content | escape) + '<'",
    "filesizeformat": "messages[1].n | filesizeformat",
    "first": "opt | first",
    "float": "'1.5' | float",
    "forceescape": "messages[2].content | forceescape",
    "format": "'Α%sΒ' | format(opt)",
    "groupby": "messages | groupby('role') | map('first') | join('Α')",
    "indent": "('Α' + messages[0].content) | indent(2, first=true)",
    "int": "'7' | int",
    "items": "messages[1].map | items | map('join', 'Α') | join",
    "join": "messages | join('Α', attribute='content')",
    "last": "opt | last",
    "length": "opt | length",
    "list": "opt | list | join('Α')",
    "lower": "messages[0].content | lower",
    "map": "messages | map(attribute='content') | map('upper') | join('Α')",
    "max": "messages | map(attribute='content') | max",
    "min": "messages | map(attribute='content') | min",
    "pprint": "messages[1].map | pprint",
    "random": "[opt] | random",
    "reject": "messages[1].list | reject('eq', 'p') | join",
    "rejectattr": "messages | rejectattr('role', 'eq', 'user') | map(attribute='role') | join",
    "replace": "messages[0].content | replace('o', 'Α' + opt)",
    "reverse": "('Α' + opt) | reverse",
    "round": "2.5 | round",
    "safe": "('Α' | safe) + messages[2].content + opt",
    "select": "messages[1].list | select | join",
    "selectattr": "messages | selectattr('role', 'eq', 'user') | map(attribute='role') | join",
    "slice": "messages[1].list | slice(2, opt) | map('join', 'Α') | join",
    "sort": "messages[0].content | sort | join",
    "string": "messages[1].list | string",
    "striptags": "messages[2].content | striptags",
    "sum": "[messages[1].n, 1] | sum",
    "title": "messages[0].content | title",
    "tojson": "['Α', messages] | tojson(indent=2)",
    "trim": "messages[1].content | trim",
    "truncate": "messages[0].content | truncate(7, true, 'Α', 0)",
    "unique": "messages[0].content | unique | join",
    "upper": "('Α' + messages[0].content) | upper",
    "urlencode": "messages[2].content | urlencode",
    "urlize": "messages[2].content | urlize",
    "wordcount": "messages[0].content | wordcount",
    "wordwrap": "messages[0].content | wordwrap(3, wrapstring='Α')",
    "xmlattr": "messages[1].map | xmlattr",
}
STATEMENTS = [
    "{% if opt == 'opt' %}{{ opt }}{% elif opt %}Α{% else %}Β{% endif %}",
    "{% for m in messages %}{{ loop.index }}{{ loop.cycle('Α', opt) }}{{ m.role }}{% else %}Β{% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}",
    "{% for m in messages recursive %}{{ m.role }}{{ loop([m]) if loop.depth < 2 else 'Α' }}{% endfor %}",
    "{% for k, v in messages[1].map.items() %}{{ k }}Α{{ v }}{% if v %}{% break %}{% endif %}{% endfor %}",
    "{% for c in opt %}{{ c }}Α{% endfor %}{% for x in messages[1].list | reverse %}{{ x }}{% endfor %}",
    "{% macro f(a, b='Α') %}{{ a }}{{ b }}{% endmacro %}{{ f(opt) }}{{ f(opt, 'Β') }}{{ f(b=opt, a=1) }}",
    "{% macro f(a) %}{{ varargs | join }}{{ kwargs.c }}{% endmacro %}{{ f(opt, 'Β', opt, c=opt) }}",
    "{% macro f() %}Α{{ caller(opt) }}{% endmacro %}{% call(x) f() %}{{ x }}Β{% endcall %}",
    "{% filter upper %}Α{{ opt }}{% endfilter %}",
    "{% set x %}Α{{ opt }}{% endset %}{{ x }}{{ x | length }}{{ x | trim | reverse }}",
    "{% set x | lower %}Α{{ opt }}{% endset %}{{ x }}",
    "{% set a, b = messages[1].list %}{{ b }}Α{{ a }}",
    "{% set n = namespace(t='Α') %}{% for m in messages %}{% set n.t = n.t + m.role %}{% endfor %}{{ n.t }}",
    "{% with y = opt %}{{ y }}Α{% endwith %}",
    "{% block one %}Α{{ opt }}{% endblock %}{{ self.one() }}",
    "{% raw %}{{ Α }}{% endraw %}{{ opt }}",
    "{% generation %}Α{{ opt }}{% endgeneration %}",
    "{{ opt if opt else 'Α' }}{{ opt in opt }}{{ opt and 'Α' or 'Β' }}{{ not opt }}{{ opt * 2 + 'Α' * 2 }}",
    "{{ [opt, 'Α'][0] }}{{ {'Α': opt}['Α'] }}{{ (opt, 'Α')[1] }}{{ [opt] + messages[1].list }}{{ 3 ~ opt }}",
    "{{ messages[1].get('none', 'Α') }}{{ messages[1].values() | length }}{{ messages[1].keys() | join }}",
    "{{ dict(messages[1].map, x=opt).items() | map('join') | join('Α') }}{{ range(3) | join(opt) }}",
    "{{ cycler('Α', opt).next() }}{% set j = joiner('Α') %}{{ j() }}{{ opt }}{{ j() }}",
]
METHODS = {
    "capitalize": "",
    "casefold": "",
    "center": "9",
    "expandtabs": "",
    "format": "opt",
    "format_map": "messages[1].greek",
    "join": "messages[1].list",
    "ljust": "30",
    "lower": "",
    "lstrip": "'ons'",
    "removeprefix": "'one'",
    "removesuffix": "'hree'",
    "replace": "'', 'Α'",
    "rjust": "30",
    "rstrip": "'e'",
    "strip": "'e'",
    "swapcase": "",
    "title": "",
    "translate": "{111: 'Α'}",
    "upper": "",
    "zfill": "30",
}


def sandwiched(source):
    """The segments of a template between two literals: it was followed, not given up."""
    text, segments = checked("Ω" + source + "Ω")
    assert segments[0].kind == segments[-1].kind == "format", source
    return text, segments


def test_the_tables_know_every_filter_and_every_method_that_gives_text():
    assert FILTERS.keys() == TracedEnvironment({}, datetime.now).filters.keys() - {
        "traced concat",
        "traced loop",
    }
    texts = {
        "encode",
        "maketrans",
        "partition",
        "rpartition",
        "rsplit",
        "split",
        "splitlines",
    }  # give no text
    questions = {"count", "endswith", "find", "index", "rfind", "rindex", "startswith"}
    public = {name for name in dir(str) if not name.startswith(("_", "is"))}
    assert METHODS.keys() == public - texts - questions


@pytest.mark.parametrize("expression", FILTERS.values(), ids=FILTERS)
def test_every_filter_keeps_text_and_trust(expression):
    sandwiched("{{ " + expression + " }}")


@pytest.mark.parametrize("statement", STATEMENTS)
def test_every_statement_keeps_text_and_trust(statement):
    sandwiched(statement)


@pytest.mark.parametrize("receiver", ["messages[0].content", "('Α' + messages[2].content)", "'Α{κ}'"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_keeps_text_and_trust(method, receiver):
    arguments = "κ=opt" if method == "format" else METHODS[method]
    sandwiched("{{ " + f"{receiver}.{method}({arguments})" + " }}")


TEXTS = st.sampled_from(
    [
        "opt",
        "'Α'",
        "''",
        "'Β Γ'",
        "bos_token",
        "messages[0].content",
        "messages[1].content",
        "messages[2].empty",
        "m.content",
        "m.role",
        "messages[1].n | string",
        "tools[0].function.description",
        "x",
    ]
)


def grown(texts):
    pair = st.tuples(texts, texts)
    return st.one_of(
        st.tuples(
            texts, st.sampled_from(["trim", "upper", "title", "reverse", "tojson", "e", "indent", "string"])
        ).map(lambda t: f"({t[0]} | {t[1]})"),
        st.tuples(
            texts, st.sampled_from(["strip()", "lower()", "split('o')[-1]", "split()[0]", "zfill(9)"])
        ).map(lambda t: f"(({t[0]}) + ' ').{t[1]}"),
        st.tuples(texts, st.sampled_from(["[1:]", "[:-1]", "[::-1]", "[1:3]"])).map(
            lambda t: f"({t[0]}){t[1]}"
        ),
        pair.map(lambda t: f"({t[0]} + {t[1]})"),
        pair.map(lambda t: f"({t[0]} ~ {t[1]})"),
        pair.map(lambda t: f"({t[0]} if {t[1]} else 'Δ')"),
        pair.map(lambda t: f"[{t[0]}, {t[1]}] | join('Α')"),
        pair.map(lambda t: f"({t[0]} | replace('e', {t[1]}))"),
        pair.map(lambda t: f"('Α%sΒ{{}}' % ({t[0]},)).format({t[1]})"),
        pair.map(lambda t: f"{{{t[0]}: [{t[1]}, 1]}} | tojson"),
    )


EXPRESSIONS = st.recursive(TEXTS, grown, max_leaves=8)
WRAPPERS = st.sampled_from(
    [
        "%s",
        "{%% set x %%}%s{%% endset %%}{{ x }}{{ x | trim }}",
        "{%% filter upper %%}%s{%% endfilter %%}",
        "{%% for m in messages[1:] %%}%s{%% endfor %%}",
        "{%% macro f(x) %%}%s{%% endmacro %%}{{ f(opt) }}",
    ]
)


@settings(max_examples=50)
@given(st.lists(st.tuples(WRAPPERS, EXPRESSIONS), min_size=1, max_size=3))
def test_any_composition_keeps_text_and_trust(outputs):
    body = "".join(wrapper % ("Σ{{ " + expression + " }}") for wrapper, expression in outputs)
    source = "{% set m = messages[1] %}{% set x = opt %}" + body
    try:
        _, segments = checked(source)
    except RenderError:  # for instance, what a split leaves has no first character
        return
    assert segments[0].kind == "format", source


def scopes(source, **kwargs):
    text, segments = trace(source, **kwargs)
    return [(text[s.start : s.end], s.scope and s.scope[-1]) for s in segments if s.kind == "format"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("Α{% for m in messages %}Β{% endfor %}Γ", [("Α", None), ("Β", 0), ("Β", 1), ("Β", 2), ("Γ", None)]),
        (
            "{% for m in messages[1:] %}{% if loop.last %}{% break %}{% endif %}Β{% endfor %}Γ",
            [("Β", 1), ("Γ", None)],
        ),
        ("{% for m in messages[::-1] %}Β{% endfor %}", [("Β", 2), ("Β", 1), ("Β", 0)]),
        ("{% for m in messages[:2] %}{% for t in tools %}Α{% endfor %}Β{% endfor %}", [("ΑΒ", 0), ("ΑΒ", 1)]),
        ("{% for t in tools %}Α{% endfor %}{% for x in [1, 2] %}Β{% endfor %}", [("Α", 0), ("ΒΒ", None)]),
        (
            "{% macro f(m) %}Α{% endmacro %}{% for m in messages[:1] %}{{ f(m) }}{% endfor %}Β",
            [("Α", 0), ("Β", None)],
        ),
        ("{% for m in messages[:1] + [1] %}Α{% endfor %}", [("Α", 0), ("Α", None)]),
        ("{% set x %}{% for m in messages[:1] %}Α{% endfor %}Β{% endset %}{{ x }}", [("Α", 0), ("Β", None)]),
        # what is cut out of a captured loop no longer knows its item
        ("{% set x %}{% for m in messages[:1] %}Α{% endfor %}Β{% endset %}{{ x[:1] }}", [("Α", None)]),
    ],
)
def test_the_format_knows_the_item_it_was_written_for(source, expected):
    assert scopes(source) == expected


def test_loops_of_imported_macros_do_not_end_those_around_them():
    shared = {"shared.jinja": "{% macro f(m) %}{% for t in tools %}Α{% endfor %}Β{% endmacro %}"}
    source = "{% from 'shared.jinja' import f with context %}{% for m in messages %}{{ f(m) }}Γ{% endfor %}"
    text, segments = ChatTemplate(source, name="test.jinja", loader=shared).trace(MESSAGES, TOOLS)
    assert text == "ΑΒΓ" * 3
    assert [s.scope for s in segments] == [("messages", 0), ("messages", 1), ("messages", 2)]


def test_spans_for_a_tokenizer_and_for_a_loss_mask():
    text, segments = trace(
        "{{ bos_token }}{% for m in messages[1:] %}Α{{ m.role }}Β{{ m.content }}{% endfor %}Γ"
    )
    assert [text[start:end] for start, end in trusted_spans(segments)] == ["<bos>Α", "Β", "Α", "Β", "Γ"]
    masked = [text[start:end] for start, end in scoped_spans(segments, ("messages", 2))]
    assert masked == ["ΑassistantΒ<b>see www.abc.de & go</b>"]
    assert scoped_spans(segments, ("messages", 0)) == ()


OPEN = [{"role": "assistant", "content": "so \n"}]


def test_an_open_last_turn_is_cut_with_its_origins():
    source = "{% for m in messages[1:] %}Α{{ m.content | trim }}Β{% endfor %}"
    text, segments = trace(source, MESSAGES + OPEN, continue_final_message=True)
    assert text.endswith("Αso")
    assert segments[-1] == Segment(
        len(text) - 2, len(text), "value", ("messages", 3, "content"), 0, ("messages", 3)
    )


def test_special_tokens_that_options_replace_are_not_trusted():
    text, segments = trace("{{ bos_token }}", bos_token="<evil>")
    assert segments == (Segment(0, len(text), "value", ("kwargs", "bos_token"), 0),)


def test_prepared_messages_keep_their_origins():
    def prepare(messages, variables):
        first, *rest = messages
        return [*rest, first | {"more": first["role"], "own": "Αx"}, {**first, "own": "Βx"}]

    source = "{% for m in messages %}{{ m.role }}{{ m.more }}{{ m.own }};{% endfor %}"
    text, segments = ChatTemplate(source, name="test.jinja", prepare=prepare).trace(MESSAGES[:2])
    assert text == "user;systemsystemΑx;systemΒx;"
    assert [(text[s.start : s.end], s.kind, s.path, s.scope) for s in segments] == [
        ("user", "value", ("messages", 1, "role"), ("messages", 1)),
        (";", "format", (), ("messages", 1)),
        ("system", "value", ("messages", 0, "role"), ("messages", 0)),
        ("system", "value", ("messages", 0, "role"), ("messages", 0)),
        ("Αx", "computed", (), ("messages", 0)),
        (";", "format", (), ("messages", 0)),
        ("system", "value", ("messages", 0, "role"), None),
        ("Βx", "computed", (), None),
        (";", "format", (), None),
    ]


@pytest.mark.parametrize("fails", [False, True])
def test_what_cannot_be_followed_is_one_untrusted_segment(fails):
    renders = []

    def changing():
        renders.append(1)
        if len(renders) > 1 and fails:
            raise ValueError
        return "x" * len(renders)

    text, segments = ChatTemplate("Α{{ f() }}", name="test.jinja").trace(MESSAGES, f=changing)
    assert text == "Αx"
    assert segments == (Segment(0, 2, "derived"),)


def test_a_refusal_is_that_of_the_plain_render():
    with pytest.raises(RenderError, match="no <b>"):
        trace(
            "{% for m in messages %}{% if loop.last %}"
            "{{ raise_exception('no ' ~ m.content) }}{% endif %}{% endfor %}"
        )


def test_a_plain_render_never_compiles_the_traced_one():
    template = ChatTemplate("Α{{ opt }}", name="test.jinja")
    template.render(MESSAGES, opt="x")
    assert "_traced" not in vars(template)
