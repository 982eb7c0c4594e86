"""The values of a conversation, and what building one refuses."""

import pytest

import colibri
from colibri.conversation import ToolCall
from colibri.errors import ConversationError


@pytest.mark.parametrize(
    "arguments", ["", "x", "{", "[" * 100_000, '{"a": ' * 5000, '{"n": ' + "9" * 5000 + "}"]
)
def test_arguments_that_cannot_be_decoded_are_refused_in_a_sentence(arguments):
    with pytest.raises(ConversationError, match="the arguments of the call to 'f' are not JSON"):
        ToolCall("f", arguments).decoded()


@pytest.mark.parametrize("options", [["thinking"], "thinking", 5, {5: True}, {None: 1}])
def test_options_are_an_object_with_names(options):
    with pytest.raises(ConversationError, match="`options` must be an object with strings as keys"):
        colibri.conversation_from_openai([{"role": "user", "content": "Hi"}], options=options)
