"""From a conversation to the exact prompt, by a variant's template and data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from attrs import evolve, frozen

from colibri.conversation import Conversation
from colibri.errors import RenderError, Where
from colibri.family import Prompt, Start
from colibri.grammar import Grammar
from colibri.messages import Places, template_messages, template_tools
from colibri.provenance import Segment
from colibri.templates import ChatTemplate
from colibri.thinking import ThinkingRule

__all__ = ["ForcedTool", "Renderer", "reply_tail"]

ForcedTool: TypeAlias = Literal["narrow", "narrow+line", "message", "ignored"]


@frozen
class Renderer:
    """Writes a variant's prompts.

    `special_tokens` are template variables such as bos_token. `keywords` are passed on every render.
    `forced_tool` says what a forced tool does; `tool_choice_keyword` is the official keyword that carries
    the choice, for variants whose format has one. `open_keyword` is the template variable that leaves the
    last turn open; without it the text is cut after the last message as Hugging Face does.
    """

    template: ChatTemplate
    grammar: Grammar
    thinking: ThinkingRule
    stop: tuple[str, ...] = ()
    special_tokens: Mapping[str, str] = {}
    keywords: Mapping[str, Any] = {}
    forced_tool: ForcedTool = "ignored"
    tool_choice_keyword: str | None = None
    open_keyword: str | None = None

    def __call__(self, conversation: Conversation, cue: bool = True) -> Prompt:
        """The prompt; `cue=False` leaves the generation cue off.

        Raises:
            RenderError: the format refuses this conversation.
            RequestError: a thinking level is unknown.
        """
        if conversation.open_last and not (conversation.turns and conversation.turns[-1].role == "assistant"):
            raise RenderError(
                "only a trailing assistant turn can be continued; end the messages with one",
                where=Where(turn=len(conversation.turns) - 1),
            )
        messages, tools, keywords = self._arguments(conversation, cue)
        try:
            text = self.template.render(messages, tools, **keywords)
        except RenderError as error:
            error.where = _in_conversation(error.where, conversation)
            raise

        def trace() -> tuple[Segment, ...]:
            # The inputs are rebuilt so that nothing the caller did since then can show.
            messages, tools, keywords = self._arguments(conversation, cue)
            return self.template.trace(messages, tools, rendered=text, **keywords)[1]

        start = self._start(text) if cue or conversation.open_last else None
        return Prompt(text, start, self.stop, trace, conversation)

    def _arguments(
        self, conversation: Conversation, cue: bool
    ) -> tuple[list[dict[str, Any]], list[Any] | None, dict[str, Any]]:
        keywords: dict[str, Any] = {
            **self.keywords,
            **self.thinking.keywords(conversation.thinking),
            **self._choice(conversation),
            **conversation.options,
        }
        messages = template_messages(conversation)
        tools = template_tools(self._offered(conversation))
        if conversation.open_last and self.open_keyword is not None:
            keywords[self.open_keyword] = True
        keywords |= {
            "add_generation_prompt": cue and not conversation.open_last,
            "continue_final_message": conversation.open_last and self.open_keyword is None,
            "special_tokens": self.special_tokens,
        }
        return messages, tools, keywords

    def _offered(self, conversation: Conversation) -> Conversation:
        choice = conversation.tool_choice
        if choice is None:
            return conversation
        if choice.mode == "none" and self.tool_choice_keyword is None:
            return evolve(conversation, tools=())
        if choice.mode == "tool" and self.forced_tool != "ignored":
            return evolve(
                conversation, tools=tuple(tool for tool in conversation.tools if tool.name == choice.name)
            )
        return conversation

    def _choice(self, conversation: Conversation) -> dict[str, Any]:
        choice = conversation.tool_choice
        if choice is None or not conversation.tools:
            return {}
        if choice.mode == "tool" and self.forced_tool in ("narrow+line", "message"):
            return {"forced_tool": choice.name}
        if choice.mode in ("required", "none") and self.tool_choice_keyword is not None:
            return {self.tool_choice_keyword: choice.mode}
        return {"required": True} if choice.mode == "required" else {}

    def _start(self, text: str) -> Start:
        tail = reply_tail(text, self.grammar)
        return None if tail is None else self.grammar.start_of(tail)


def _in_conversation(where: Where | None, conversation: Conversation) -> Where | None:
    """The turn and part of a place that counts template messages and what is in their `field`."""
    if where is None or where.turn is None:
        return where
    within = () if where.field is None or where.part is None else (where.field, where.part)
    return Places(conversation).where(("messages", where.turn, *within))


def reply_tail(text: str, grammar: Grammar) -> str | None:
    """What a prompt writes after its last generation cue; None when it has no cue."""
    at = text.rfind(grammar.cue)
    return None if at < 0 else text[at + len(grammar.cue) :]
