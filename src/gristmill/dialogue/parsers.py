"""The parser of each format: the only place that knows them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gristmill.dialogue.deepseek import DeepSeekSyntax
from gristmill.dialogue.harmony import HarmonyParser
from gristmill.dialogue.llama import LlamaParser
from gristmill.dialogue.output import Answer, new_call_id
from gristmill.dialogue.plain import PlainParser
from gristmill.dialogue.qwen import HermesSyntax
from gristmill.dialogue.qwen3_coder import Qwen3CoderSyntax
from gristmill.dialogue.tagged import TaggedParser
from gristmill.dialogue.tools import callable_names
from gristmill.dialogue.types import AUTO, Kind, Parser, Tool, ToolChoice


def make_parser(
    kind: Kind | str,
    *,
    tools: Sequence[Tool] = (),
    tool_choice: ToolChoice = AUTO,
    parallel: bool = True,
    starts_in_reasoning: bool = False,
    constrained: bool = False,
    new_id: Callable[[], str] = new_call_id,
) -> Parser:
    """A parser for one answer.

    kind                 see `detect`
    tools, tool_choice   what may be called: all of the tools, the one that is named, or none. Other calls are content
    parallel             False: calls after the first are content
    starts_in_reasoning  the prompt has opened the thought (`ends_in_thinking`); Harmony's answers say it themselves
    constrained          the answer keeps to an `answer_grammar`: it begins with a call, or it is content to its end
    new_id               makes the calls' ids
    Raises ValueError for a kind that there is not.
    """
    names, beside = callable_names(tools, tool_choice), Kind(kind) is not Kind.HARMONY
    answer = Answer(names, parallel=parallel, beside=beside, new_id=new_id)
    how = {"starts_in_reasoning": starts_in_reasoning, "constrained": constrained}
    match Kind(kind):
        case Kind.QWEN:
            return TaggedParser(answer, HermesSyntax(answer), **how)
        case Kind.QWEN3_CODER:
            return TaggedParser(answer, Qwen3CoderSyntax(answer, tools), **how)
        case Kind.DEEPSEEK:
            return TaggedParser(answer, DeepSeekSyntax(answer), **how)
        case Kind.LLAMA:
            return LlamaParser(answer, constrained=constrained)
        case Kind.HARMONY:
            return HarmonyParser(answer)
        case Kind.PLAIN:
            return PlainParser()
