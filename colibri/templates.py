"""Chat templates, rendered byte for byte as Hugging Face's `apply_chat_template` renders them.

Text in messages is only ever a value: nothing of it is compiled or executed. Jinja is imported with the
first template that is compiled, so that families can be listed and replies read without it.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import frozen

from colibri.errors import FamilyFileError, RenderError, Where
from colibri.messages import REASONING_KEYS
from colibri.provenance import Segment
from colibri.traced_values import traced

if TYPE_CHECKING:
    from jinja2 import Template, TemplateNotFound, TemplateSyntaxError

    from colibri.sandbox import Clock

__all__ = ["ChatTemplate", "Prepare"]

Messages: TypeAlias = Sequence[dict[str, Any]]
Prepare: TypeAlias = Callable[[list[dict[str, Any]], Mapping[str, Any]], list[dict[str, Any]]]
"""Rearranges messages before the template sees them: takes them and the other template variables.

`message | changes` is a changed message that still stands at its place in the conversation.
"""

# Appended to the text that is to be continued, to find its end in the render. It is Hugging Face's own
# spelling, so that templates which inspect their input see the same text.
OPEN_END = "CONTINUE_FINAL_MESSAGE_TAG "


class ChatTemplate:
    """A chat template, compiled when it is first needed and only once.

    `name` is how errors call it, normally its file's name. `loader` holds the sources of templates that
    this one imports, by name. `prepare` rearranges messages where a template cannot, and may raise
    RenderError. `clock` tells the time to `strftime_now`.
    """

    def __init__(
        self,
        source: str,
        *,
        name: str,
        loader: Mapping[str, str] | None = None,
        prepare: Prepare | None = None,
        clock: Clock = datetime.now,
    ) -> None:
        self.source = source
        self.name = name
        self.loader = dict(loader or {})
        self._prepare = prepare
        self._clock = clock

    def render(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]] | None = None,
        /,
        *,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        special_tokens: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> str:
        """The prompt for `messages`, which are as `messages.template_messages` gives them.

        `continue_final_message` leaves the last message open: True its content, a string the key of that
        name. `special_tokens` are variables such as bos_token; `kwargs` are further ones and win.

        Raises:
            RenderError: the template refuses the conversation; `where` counts messages, and in them the items
                of `where.field`, content or tool_calls.
            FamilyFileError: the template itself is broken.
        """
        call = _Call.of(
            messages,
            tools,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            special_tokens=special_tokens,
            **kwargs,
        )
        text = self._run(call)
        return text[: call.length(text)]

    def trace(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]] | None = None,
        /,
        *,
        rendered: str | None = None,
        **arguments: Any,
    ) -> tuple[str, tuple[Segment, ...]]:
        """The prompt as `render` with the same arguments gives it, and the origin of its characters.

        `rendered` is what it gave, if that is known.

        The segments cover the prompt without gaps. Should a traced render ever give another text than the
        plain one, which a template can provoke with a filter such as `random`, all of it is one segment of
        kind "derived": nothing known, nothing trusted.

        Raises:
            RenderError: as `render` does.
            FamilyFileError: as `render` does.
        """
        call = _Call.of(messages, tools, **arguments)
        text = self._run(call) if rendered is None or call.open_text is not None else rendered
        length = call.length(text)
        return text[:length], self._segments(call, text, length)

    def compile(self) -> None:
        """Compile now rather than at the first render.

        Raises:
            FamilyFileError: the template has a syntax error.
        """
        self._plain  # noqa: B018

    @cached_property
    def _plain(self) -> Template:
        from jinja2 import TemplateSyntaxError

        from colibri.sandbox import ChatEnvironment

        try:
            return ChatEnvironment(self.loader, self._clock).from_string(self.source)
        except TemplateSyntaxError as error:
            raise _broken(self.name, error) from None

    @cached_property
    def _traced(self) -> Template:
        from colibri.tracing import TracedEnvironment

        return TracedEnvironment(self.loader, self._clock).from_string(self.source)

    def _run(self, call: _Call) -> str:
        from jinja2 import TemplateNotFound, TemplateSyntaxError

        try:
            return str(self._text(self._plain, call.messages, call.variables))
        except (RenderError, FamilyFileError):
            raise
        except (TemplateSyntaxError, TemplateNotFound) as error:
            raise _broken(self.name, error) from None
        except Exception as error:
            raise _refusal(self.name, error, call.messages) from error

    def _segments(self, call: _Call, text: str, length: int) -> tuple[Segment, ...]:
        from colibri.tracing import segments_of

        try:
            followed = self._text(self._traced, *call.traced())
        except Exception:  # whatever it is, the plain render has given the text
            followed = None
        if followed == text:
            return segments_of(followed, length)
        return (Segment(0, length, "derived"),) if length else ()

    def _text(self, template: Template, messages: list[dict[str, Any]], variables: dict[str, Any]) -> Any:
        if self._prepare is not None:
            messages = self._prepare(messages, variables)
        context = template.new_context({**variables, "messages": messages})
        try:
            return template.environment.concat(template.root_render_func(context))
        finally:
            # Its macros refer to the context and it to them; what was rendered need not wait with them.
            context.parent.clear()
            context.vars.clear()


@frozen
class _Call:
    """What one render is given.

    `open_text` is the text that the prompt ends in when the last message stays open.
    """

    messages: list[dict[str, Any]]
    variables: dict[str, Any]
    special: frozenset[str]
    open_text: str | None = None

    @classmethod
    def of(
        cls,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]] | None,
        /,
        *,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        special_tokens: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> _Call:
        if "messages" in kwargs or "tools" in kwargs:
            raise RenderError("messages and tools are no options of a chat template; leave them out of these")
        special = {name: text for name, text in (special_tokens or {}).items() if name not in kwargs}
        own = {"tools": tools, "add_generation_prompt": add_generation_prompt}
        variables = {"documents": None, **special, **kwargs, **own}
        open_text = None
        if continue_final_message:
            key = continue_final_message if isinstance(continue_final_message, str) else "content"
            messages, open_text = _with_open_end(messages, key)
        return cls(list(messages), variables, frozenset(special), open_text)

    def traced(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Messages and variables that remember where they came from."""
        variables = {"tools": traced(self.variables["tools"], ("tools",))}
        for name, value in self.variables.items():
            if name in self.special:
                variables[name] = traced(value, (name,), "special")
            elif name != "tools":
                variables[name] = traced(value, ("kwargs", name))
        return traced(self.messages, ("messages",)), variables

    def length(self, text: str) -> int:
        """How much of the rendered text belongs to the prompt."""
        if self.open_text is None:
            return len(text)
        mark = OPEN_END.strip()
        end = text.rfind(mark)
        if end < 0 or self.open_text.strip() not in text:
            raise RenderError(
                "the last message cannot be continued, because the template does not print it as it is",
                where=Where(turn=len(self.messages) - 1),
            )
        if text.startswith(OPEN_END, end):
            return end
        return len(text[:end].rstrip())  # the template stripped the message, so its own end is stripped too


def _with_open_end(messages: Messages, key: str) -> tuple[list[dict[str, Any]], str]:
    """The messages with the last one's text marked, and that text."""
    last = dict(messages[-1]) if messages else {}
    content = last.get(key)
    keys = [key]
    if key in REASONING_KEYS:
        keys = [name for name in REASONING_KEYS if last.get(name) == content]
    if isinstance(content, str):
        last.update(dict.fromkeys(keys, content + OPEN_END))
        return [*messages[:-1], last], content
    if isinstance(content, list | tuple):
        for index in reversed(range(len(content))):
            if isinstance(text := content[index].get("text"), str):
                last[key] = [
                    *content[:index],
                    {**content[index], "text": text + OPEN_END},
                    *content[index + 1 :],
                ]
                return [*messages[:-1], last], text
    raise RenderError(
        f"the last message has no text in {key!r} to continue; end the conversation with an assistant's text",
        where=Where(turn=len(messages) - 1) if messages else None,
    )


def _broken(name: str, error: TemplateSyntaxError | TemplateNotFound) -> FamilyFileError:
    from jinja2 import TemplateNotFound

    if isinstance(error, TemplateNotFound):
        return FamilyFileError(f"{name} imports {error.name!r}, which is not beside it; add that file")
    return FamilyFileError(f"{error.name or name}, line {error.lineno}: {error.message}")


def _refusal(name: str, error: Exception, messages: Messages) -> RenderError:
    from jinja2 import TemplateError

    reason = str(error) if isinstance(error, TemplateError) else f"{type(error).__name__}: {error}"
    return RenderError(f"{name} refuses this conversation: {reason}", where=_place_at_work(error, messages))


def _place_at_work(error: Exception, messages: Messages) -> Where | None:
    """The message, or the item of one, that a loop variable held at the failure, innermost first."""
    places: dict[int, Where] = {}
    for turn, message in enumerate(messages):
        places[id(message)] = Where(turn)
        for field in ("content", "tool_calls"):
            if isinstance(parts := message.get(field), list):
                places |= {id(part): Where(turn, index, field=field) for index, part in enumerate(parts)}
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        # jinja's compiled code calls the variables of its loops l_1_name, and those of inner ones l_2_name
        held = [
            (int(name.split("_")[1]), places[id(value)])
            for name, value in frame.f_locals.items()
            if name.startswith("l_") and id(value) in places
        ]
        if held:
            return max(held, key=lambda found: (found[0], found[1].part is not None))[1]
    return None
