"""Conversations to prompts: a model's chat template, rendered into text of known origin, then into token ids.

Does not know what runs a template safely (`template_sandbox`), nor what a model answers."""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import CodeType, MappingProxyType
from typing import Any, Final

from gristmill.tokenizer.interface import TemplateError, Tokenizer, without_halves
from gristmill.tokenizer.template_text import cut, mark, mask_of

Parts = list[tuple[str, bool]]
"""Texts that make a prompt, each with whether the template's author wrote it: see `Tokenizer.encode_parts`."""

MAX_INPUT_DEPTH: Final = 64
MAX_INPUT_VALUES: Final = 1 << 18
# A role of these names is as good as the template's own text: templates build tokens such as <|user|> from it.
_ROLES = frozenset(["system", "developer", "user", "assistant", "tool", "function", "ipython", "model", "observation"])
_EVERYWHERE = frozenset(["system", "user", "assistant", "tool"])
_WORD = re.compile(r"\w+")
_REASONING = ("reasoning_content", "thinking", "reasoning")
# Of an assistant's message that has calls and no text, templates want the content that they ask for: none, or text.
_LOOKS_FOR_NONE = re.compile(r"\bcontent\b['\"\]]*\s+is\s+(?:not\s+)?none\b")
# Few templates put a call's arguments between other text, which has to be text then; others ask for the object.
_ADDS_ARGUMENTS = re.compile(r"\barguments\b['\"\]]*\s*[+~]")
_OWN_NAMES = frozenset({"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"})


class ChatTemplate:
    """A Jinja2 template that writes a conversation as its model was taught. Safe to use from several threads.

    source     the template; it is trusted with nothing: it runs in a sandbox, within a budget
    bos_token  texts of the tokens that begin and end a text; a name without one is not defined in the template
    named      further templates of the model; `tool_use` is taken where there are tools
    where      what errors call it, such as the file
    clock      local time, for templates that tell the date
    """

    def __init__(
        self,
        source: str,
        *,
        bos_token: str | None = None,
        eos_token: str | None = None,
        named: Mapping[str, str] | None = None,
        where: str = "chat template",
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        self.source = source
        self.named: Mapping[str, str] = MappingProxyType(dict(named or {}))
        self.bos_token = bos_token
        self.eos_token = eos_token
        self._where = where
        self._clock = clock
        self._compiled: dict[str, CodeType] = {}

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> Parts:
        """The prompt, as texts of known origin: what came from messages, tools or kwargs is not trusted.

        messages                as OpenAI's API has them: `role`, `content` (text, or a list of text parts),
                                `tool_calls` whose arguments may be JSON text, `reasoning_content`
        tools                   as OpenAI's API has them
        add_generation_prompt   end with the beginning of the assistant's answer
        continue_final_message  end inside the last message, for the model to go on; there is no generation prompt then
        chat_template_kwargs    what else the template asks for, such as enable_thinking or reasoning_effort
        Raises ValueError naming what is wrong with the conversation, and TemplateError (also a ValueError) for a
        template that is broken, refuses the conversation, does what templates may not, or exceeds its budget; and for
        a role whose messages the template leaves out. `developer` is `system` where it does not know it.
        """
        kwargs = chat_template_kwargs or {}
        if overridden := sorted(_OWN_NAMES & set(kwargs)):
            raise ValueError(f"chat_template_kwargs: {', '.join(overridden)} cannot be given here")
        copier = _Copier()
        name = "tool_use" if tools and "tool_use" in self.named else ""
        source = self._source_of(name)
        chat = _read_messages(copier, messages, text_arguments=bool(_ADDS_ARGUMENTS.search(source)))
        if "developer" not in source:
            _rename(chat, "developer", "system")
        _fill_contents(chat, None if _LOOKS_FOR_NONE.search(source) else "")
        variables: dict[str, Any] = {"documents": None, **copier.copy(dict(kwargs), "chat_template_kwargs")}
        variables["messages"] = chat
        variables["tools"] = copier.copy(list(tools), "tools") if tools else None
        variables["add_generation_prompt"] = add_generation_prompt and not continue_final_message
        for variable, text in (("bos_token", self.bos_token), ("eos_token", self.eos_token)):
            if text is not None:
                variables[variable] = mark(text)
        tag = _add_tag(chat) if continue_final_message else ""
        text = self._run(name, variables, copier.n_characters)
        parts = _to_parts(_cut_at(text, tag) if tag else text)
        _check_roles(chat, parts)
        return parts

    def _source_of(self, name: str) -> str:
        return self.named[name] if name else self.source

    def _run(self, name: str, variables: Mapping[str, Any], n_characters: int) -> str:
        from gristmill.tokenizer import template_sandbox as sandbox  # jinja2 takes 40 ms to import

        started = time.monotonic()
        try:
            if name not in self._compiled:
                self._compiled[name] = sandbox.compile_template(self._source_of(name))
            return sandbox.run(self._compiled[name], variables, n_characters, self._clock, started)
        except TemplateError as error:
            raise TemplateError(f"{self._where}{name and f' ({name})'}: {error}") from None


def encode_chat(
    tokenizer: Tokenizer,
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
    chat_template_kwargs: Mapping[str, Any] | None = None,
) -> list[int]:
    """Ids of a conversation (arguments and errors as in `ChatTemplate.render`), with BOS once where the model wants it.

    Texts of special tokens inside messages, tools and kwargs are plain text.
    """
    parts = template.render(
        messages,
        tools=tools,
        add_generation_prompt=add_generation_prompt,
        continue_final_message=continue_final_message,
        chat_template_kwargs=chat_template_kwargs,
    )
    return encode_parts(tokenizer, parts)


def encode_parts(tokenizer: Tokenizer, parts: Parts) -> list[int]:
    """Ids of a rendered conversation, with BOS first where the model wants it and the template has not put it."""
    bos_id = tokenizer.bos_id
    ids = tokenizer.encode_parts(parts, add_special=False)  # an EOS after the prompt would end the answer
    if tokenizer.adds_bos and bos_id is not None and ids[:1] != [bos_id]:
        ids.insert(0, bos_id)
    return ids


def ends_in_thinking(parts: Parts, start: str = "<think>", end: str = "</think>") -> bool:
    """Whether a prompt ends inside an open `<think>`, so that the answer begins with reasoning (DeepSeek-R1).

    What users wrote does not count, except an answer begun by `continue_final_message`.
    """
    own, begun = _end_of(parts)
    if start in begun or end in begun:
        return begun.rfind(start) > begun.rfind(end)
    at = own.rfind(start)
    return at >= 0 and not own[at + len(start) :].strip()


def ends_after_thinking(parts: Parts, end: str = "</think>") -> bool:
    """Whether no thought comes after a prompt: its template has closed one (thinking is off), or the answer was begun
    beyond it."""
    own, begun = _end_of(parts)
    return not ends_in_thinking(parts) if begun else own.rstrip().endswith(end)


def _end_of(parts: Parts) -> tuple[str, str]:
    """The last text of the template's own, and what users wrote after it."""
    last = max((i for i, (_, trusted) in enumerate(parts) if trusted), default=-1)
    return parts[last][0] if last >= 0 else "", "".join(text for text, _ in parts[last + 1 :])


class _Copier:
    """Plain copies of what callers give, so that templates see no object with a life of its own.

    mends  halves of surrogate pairs become U+FFFD, as models write them in calls; elsewhere they are refused later
    """

    def __init__(self, *, mends: bool = False) -> None:
        self.n_characters = 0
        self._n_values = 0
        self._mends = mends

    def copy(self, value: Any, where: str, depth: int = 0) -> Any:
        self._n_values += 1
        self.n_characters += 16
        if depth > MAX_INPUT_DEPTH or self._n_values > MAX_INPUT_VALUES:
            raise ValueError(f"{where}: more than {MAX_INPUT_VALUES} values or nested deeper than {MAX_INPUT_DEPTH}")
        if isinstance(value, str):
            self.n_characters += len(value)
            return self._plain(value)
        if value is None or type(value) in (bool, int):
            return value
        if isinstance(value, float):
            if not math.isfinite(value):
                raise ValueError(f"{where}: is {value}; numbers are finite")
            return float(value)
        if isinstance(value, Mapping):
            return {
                self._key(key, where): self.copy(item, f"{where}.{key!s:.40}", depth + 1) for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.copy(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
        raise ValueError(f"{where}: is of type {type(value).__name__}; give what JSON can hold")

    def _key(self, key: Any, where: str) -> str:
        if not isinstance(key, str):
            raise ValueError(f"{where}: has the key {key!r:.40}; keys are strings")
        self.n_characters += len(key)
        return self._plain(key)

    def _plain(self, text: str) -> str:
        plain = str.__getitem__(text, slice(None)) if type(text) is not str else text
        return without_halves(plain) if self._mends else plain


def _read_messages(
    copier: _Copier, messages: Sequence[Mapping[str, Any]], *, text_arguments: bool
) -> list[dict[str, Any]]:
    if isinstance(messages, str | bytes | Mapping) or not messages:
        raise ValueError("messages: give a list of at least one message, such as {'role': 'user', 'content': '...'}")
    found = []
    for i, message in enumerate(messages):
        where = f"messages[{i}]"
        if not isinstance(message, Mapping):
            raise ValueError(f"{where}: is of type {type(message).__name__}, not an object with role and content")
        copied: dict[str, Any] = copier.copy(message, where)
        # Clients write what a message lacks as null, or as no calls; templates ask whether the name is there.
        copied = {
            name: value for name, value in copied.items() if value or (value is not None and name != "tool_calls")
        }
        role = copied.get("role")
        if not isinstance(role, str) or not role:
            raise ValueError(f"{where}.role: is {role!r:.40}; give user, assistant, system or tool")
        copied["role"] = mark(role) if role in _ROLES else role
        if isinstance(copied.get("content"), list):
            copied["content"] = _join_text(copied["content"], f"{where}.content")
        if copied.get("tool_calls"):
            _convert_arguments(copied["tool_calls"], f"{where}.tool_calls", to_text=text_arguments)
        _add_reasoning_names(copied)
        found.append(copied)
    return found


def _rename(chat: list[dict[str, Any]], role: str, other: str) -> None:
    for message in chat:
        if message["role"] == role:
            message["role"] = mark(other)


def _check_roles(chat: list[dict[str, Any]], parts: Parts) -> None:
    """Many templates leave a message out in silence when its role is none of theirs. Its longest word tells: what is
    between words may be written in another way."""
    strange = [i for i, m in enumerate(chat) if m["role"] not in _EVERYWHERE and isinstance(m.get("content"), str)]
    rendered = "".join(text for text, _ in parts) if strange else ""
    for i in strange:
        content = chat[i]["content"]
        if max(_WORD.findall(content), key=len, default="") not in rendered:
            raise TemplateError(
                f"messages[{i}].role: is {chat[i]['role']!r:.40}, which the chat template leaves out; "
                "give user, assistant, system or tool"
            )


def _fill_contents(chat: list[dict[str, Any]], empty: str | None) -> None:
    for message in chat:
        if message["role"] == "assistant" and message.get("content") is None:
            message["content"] = empty


def _join_text(content: Iterable[Any], where: str) -> str:
    texts = []
    for i, part in enumerate(content):
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, dict) else part
            raise ValueError(f"{where}[{i}]: is {kind!r:.40}; parts are {{'type': 'text', 'text': '...'}}")
        texts.append(part["text"])
    return "\n".join(texts)


def _convert_arguments(calls: Any, where: str, *, to_text: bool) -> None:
    """OpenAI's API has a call's arguments as JSON text, most templates expect the object. No text is an empty one; what
    is no sound one stays text."""
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise ValueError(f"{where}: is {calls!r:.40}, not a list of calls")
    for call in calls:
        function = call.get("function", call)
        if not isinstance(function, dict):
            continue
        if function.get("arguments") in (None, ""):
            function["arguments"] = {}
        if to_text and isinstance(function["arguments"], dict):
            function["arguments"] = json.dumps(function["arguments"], ensure_ascii=False)
        elif not to_text and isinstance(function["arguments"], str):
            try:
                arguments = json.loads(function["arguments"])
                if isinstance(arguments, dict):
                    function["arguments"] = _Copier(mends=True).copy(arguments, where)
            except (ValueError, RecursionError):
                continue


def _add_reasoning_names(message: dict[str, Any]) -> None:
    """Templates read an answer's reasoning under one name or another.

    gpt-oss's reads `thinking`, and takes calls with a thought or with text, not with both: the text counts then.
    """
    reasoning = next((message[name] for name in _REASONING if message.get(name) is not None), None)
    if reasoning is None:
        return
    message["reasoning_content"] = reasoning
    if not (message.get("content") and message.get("tool_calls")):
        message.setdefault("thinking", reasoning)


def _add_tag(chat: list[dict[str, Any]]) -> str:
    """Mark where the last message's content ends with text that occurs nowhere else, and a space."""
    content = chat[-1].get("content")
    if not isinstance(content, str):
        raise ValueError(f"messages[{len(chat) - 1}].content: is no text that could be continued")
    tag = f"<{os.urandom(16).hex()}>"
    chat[-1]["content"] = f"{content}{tag} "
    return tag


def _cut_at(text: str, tag: str) -> str:
    """`text` up to the tag. A template that strips contents took the space after it: then spaces before it go too."""
    at = text.rfind(tag)
    if at < 0:
        raise ValueError("continue_final_message: the chat template does not write the last message's content")
    kept = cut(text, slice(0, at))
    return kept if text[at + len(tag) :][:1] == " " else cut(kept, slice(0, len(kept.rstrip())))


def _to_parts(text: str) -> Parts:
    mask = mask_of(text)
    parts: Parts = []
    at = 0
    while at < len(mask):
        trusted = mask[at]
        end = mask.find(1 - trusted, at)
        end = len(mask) if end < 0 else end
        parts.append((str.__getitem__(text, slice(at, end)), bool(trusted)))
        at = end
    return parts
