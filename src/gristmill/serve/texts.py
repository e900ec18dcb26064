"""Text to ids and back for the server: prompts, conversations, readers of answers. It knows no engine and no JSON
field but those of a conversation. What takes long runs on its own threads."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from typing import Any, Final, TypeVar

from gristmill.dialogue.format import ChatFormat, ChatPrompt
from gristmill.dialogue.grammar import faulty_tool
from gristmill.dialogue.harmony_chat import chat_messages
from gristmill.dialogue.harmony_render import ResponseFormat, render
from gristmill.dialogue.reader import DialogueReader
from gristmill.dialogue.tools import read_tool_choice, read_tools
from gristmill.dialogue.types import ChoiceMode, Kind, Tool
from gristmill.serve.chat_protocol import ChatRequest, Conversation, Message, Role
from gristmill.serve.errors import ApiError, refuse, too_long, unsupported
from gristmill.serve.model import Model
from gristmill.tokenizer.chat import ChatTemplate, Parts, encode_parts
from gristmill.tokenizer.interface import TemplateError, Tokenizer
from gristmill.types import StructuredOutputsParams

T = TypeVar("T")


class Texts:
    """The vocabulary and the chat template of a model. Raises MissingTokenizerError for a model without the first.

    parse_special       whether prompts may have special tokens; of conversations only what their template wrote may
    shows_later_system  whether system messages may come anywhere in a conversation, and are read where they stand
    """

    def __init__(self, model: Model, *, parse_special: bool = False) -> None:
        self.tokenizer: Tokenizer = model.tokenizer
        self._parse_special = parse_special
        self.max_context = model.max_context
        try:
            self.template: ChatTemplate | None = model.chat_template
        except TemplateError as error:
            self.template, self._no_template = None, str(error)
        self.template_words = _words(self.template) if self.template is not None else frozenset[str]()
        self._format = ChatFormat(self.tokenizer, self.template)
        self.kind = self._format.kind
        tokenizer = self.tokenizer
        self._most_bytes = max((len(tokenizer.token_bytes(i)) for i in range(tokenizer.vocab_size)), default=1)
        self._threads = ThreadPoolExecutor(2, "gristmill text")
        self.shows_later_system = self._shows_later_system()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, work: Callable[[], T]) -> T:
        """`work` on a thread of ours, so that others' answers go on meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def encode(self, text: str, param: str = "prompt") -> list[int]:
        """ApiError for a text that is longer than any context before work is put into it."""
        self.check_bytes(len(text.encode()), param)
        return self.ids(text)

    def ids(self, text: str, *, add_special: bool = True) -> list[int]:
        """Of a text of any length."""
        if self._parse_special and add_special:
            return encode_parts(self.tokenizer, [(text, True)])
        return self.tokenizer.encode(text, add_special=add_special, parse_special=self._parse_special)

    def check_bytes(self, n_bytes: int, param: str) -> None:
        # Normalization makes a text at most three times shorter: nine bytes of Hangul's parts become three.
        n_tokens = n_bytes // (3 * self._most_bytes)
        if n_tokens > self.max_context:
            raise too_long(n_tokens, 0, self.max_context, param, at_least=True)

    def check_length(self, n_prompt: int, n_answer: int | None, param: str) -> None:
        """ApiError for more than the context holds. n_answer: None for one token and more, 0 where there is none."""
        if n_prompt + (1 if n_answer is None else n_answer) > self.max_context:
            raise too_long(n_prompt, n_answer or 0, self.max_context, param)

    def prompt(self, chat: Conversation) -> ChatPrompt:
        """ApiError, or another ValueError, for a conversation that the model cannot be given."""
        tools = read_tools(_checked_tools(chat.tools))
        if chat.tool_choice is not None and not tools and chat.tool_choice not in ("none", "auto"):
            raise refuse("tool_choice", f"is {chat.tool_choice!r:.80}, but there are no tools")
        choice = read_tool_choice(chat.tool_choice, tools)
        shown = tools if choice.mode is not ChoiceMode.NONE else ()
        self._check_tools(shown)
        return self._format.prompt(self._render(chat, shown), shown, choice, chat.parallel_tool_calls)

    def expects_thoughts(self) -> bool:
        """Whether answers have one where a request says nothing of it."""
        first = Conversation(messages=[Message(role="user", content="?")])
        try:
            return self.prompt(first).thinks
        except (ApiError, ValueError):
            return False

    def _shows_later_system(self) -> bool:
        """Some templates refuse a system message after a user's, in others it takes the place of the first."""
        said = [f"mill {role} {i}" for i, role in enumerate(_TOLD_LATER)]
        messages = [Message(role=role, content=text) for role, text in zip(_TOLD_LATER, said, strict=True)]
        try:
            prompt = self.tokenizer.decode(self.prompt(Conversation(messages=messages)).ids)
        except (ApiError, ValueError):
            return False
        return re.search(".*".join(said), prompt, re.DOTALL) is not None

    def reader(
        self, prompt: ChatPrompt, stop: Sequence[str], min_tokens: int, *, constrained: bool, shows_stop: bool
    ) -> DialogueReader:
        return self._format.reader(prompt, stop, min_tokens, constrained=constrained, shows_stop=shows_stop)

    def constrain(self, prompt: ChatPrompt, answer: StructuredOutputsParams | None) -> StructuredOutputsParams | None:
        """What the engine has to keep to, so that the answer calls or keeps to `answer`. ApiError where it cannot."""
        if answer is not None and answer.grammar is not None and prompt.tools and self.kind is not Kind.HARMONY:
            raise unsupported("structured_outputs.grammar", "cannot be kept together with tools; leave one out")
        return self._format.constrain(prompt, answer)

    def about_tools(self, error: ApiError, prompt: ChatPrompt, wanted: StructuredOutputsParams | None) -> ApiError:
        """What the engine says of `wanted`, which is of `constrain`, as it is about a tool, if it is."""
        grammar = wanted.grammar if wanted is not None else None
        found = faulty_tool(grammar, str(error)) if grammar is not None else None
        if found is None:
            return error
        name = prompt.tool_choice.name
        index = [i for i, tool in enumerate(prompt.tools) if name in (None, tool.name)][found[0]]
        return refuse(f"tools[{index}].function.parameters", found[1], "invalid_schema")

    def _render(self, chat: Conversation, tools: tuple[Tool, ...]) -> Parts:
        messages = [message.plain() for message in chat.messages]
        self.check_bytes(sum(len(m["content"].encode()) for m in messages if "content" in m), "messages")
        if chat.continue_final_message and messages[-1].get("tool_calls"):
            raise refuse("messages", "end with calls, and only a text can go on; give the calls' results")
        if self.kind is Kind.HARMONY:
            return self._render_harmony(chat, messages, tools)
        template = self.template
        if template is None:
            raise ApiError(400, self._no_template, param="messages", code="no_chat_template")
        known = self.template_words
        given = list(map(_for_template, chat.tools or ())) if tools else None
        return template.render(
            messages,
            tools=given,
            add_generation_prompt=chat.add_generation_prompt,
            continue_final_message=chat.continue_final_message,
            chat_template_kwargs=_template_kwargs(chat, known),
        )

    def _render_harmony(self, chat: Conversation, messages: list[dict[str, Any]], tools: tuple[Tool, ...]) -> Parts:
        kwargs = chat.chat_template_kwargs or {}
        for name in kwargs:
            if name != "reasoning_effort":
                raise unsupported(f"chat_template_kwargs.{name:.80}", "is nothing that this model's chat format has")
        if (said := chat.reasoning_effort) is not None:
            kwargs = _agreed(kwargs, "reasoning_effort", said, said)
        effort = kwargs.get("reasoning_effort", "medium")
        answer = None
        if isinstance(chat, ChatRequest) and chat.response_format is not None and chat.response_format.json_schema:
            form = chat.response_format.json_schema
            answer = ResponseFormat(form.name, form.schema_, form.description or "")
        today = date.today().isoformat()
        begun = chat.continue_final_message
        told = chat_messages(messages, tools=tools, effort=effort, date=today, answer=answer, begun=begun)
        return render(told, for_answer=chat.add_generation_prompt, goes_on=begun)

    def _check_tools(self, tools: tuple[Tool, ...]) -> None:
        if not tools:
            return
        if self.kind is not Kind.HARMONY and "tools" not in self.template_words:
            raise unsupported("tools", "are nothing that this model's chat template has")
        if self.kind is Kind.PLAIN:
            raise unsupported(
                "tools", "are called in a format of this model's that cannot be read here; leave them out"
            )


_TOLD_LATER: Final[tuple[Role, ...]] = ("system", "user", "system", "user")
_TOOL_FIELDS = frozenset({"name", "description", "parameters", "strict"})


def _checked_tools(tools: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    for i, tool in enumerate(tools or ()):
        function = tool.get("function")
        if not isinstance(function, dict):
            continue  # said by who reads it
        for name in sorted(set(tool) - {"type", "function"}):
            raise unsupported(f"tools[{i}].{name}")
        for name in sorted(set(function) - _TOOL_FIELDS):
            raise unsupported(f"tools[{i}].function.{name}")
    return tools


def _for_template(tool: dict[str, Any]) -> dict[str, Any]:
    """As models are trained to see it: how calls are kept to their schema is said to the engine alone."""
    function = {name: value for name, value in tool.get("function", tool).items() if name != "strict"}
    return {**tool, "function": function} if "function" in tool else function


def _template_kwargs(chat: Conversation, known: frozenset[str]) -> dict[str, Any]:
    """What the template is told; ApiError for what it would not look at."""
    kwargs = dict(chat.chat_template_kwargs or {})
    for name in kwargs:
        if name not in known:
            raise unsupported(f"chat_template_kwargs.{name:.80}", "is nothing that this model's chat template has")
    effort = chat.reasoning_effort
    if effort is None:
        return kwargs
    if "reasoning_effort" in known:
        return _agreed(kwargs, "reasoning_effort", effort, effort)
    if "enable_thinking" in known:  # which is all that such a template knows of an effort
        return _agreed(kwargs, "enable_thinking", effort != "none", effort)
    raise unsupported("reasoning_effort", f"{effort!r} is nothing that this model's chat template has")


def _agreed(kwargs: dict[str, Any], name: str, value: Any, effort: str) -> dict[str, Any]:
    """`kwargs` and what an effort means; ApiError where they already say something else."""
    if kwargs.get(name, value) != value:
        raise refuse("reasoning_effort", f"{effort!r} contradicts chat_template_kwargs.{name}; leave one out")
    return {**kwargs, name: value}


def _words(template: ChatTemplate) -> frozenset[str]:
    sources = [template.source, *template.named.values()]
    return frozenset(word for source in sources for word in re.findall(r"[A-Za-z_]\w*", source))
