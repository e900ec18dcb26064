"""Chat templates for models whose files have none, chosen by the special tokens of the vocabulary.

Formats: github.com/meta-llama/llama-models (Llama 3), github.com/meta-llama/llama (Llama 2), ChatML as Qwen and others
use it, github.com/openai/harmony."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_NO_TOOLS: Final = """
{%- if tools %}{{ raise_exception('tools need a template that has them: give --chat-template FILE') }}{% endif %}
"""

_CHATML: Final = (
    _NO_TOOLS
    + """
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
)

_LLAMA3: Final = (
    _NO_TOOLS
    + """
{{- bos_token }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""
)

_LLAMA2: Final = (
    _NO_TOOLS
    + """
{%- set ns = namespace(system='', turns=0) %}
{%- for message in messages %}
    {%- if message.role == 'system' and loop.first %}
        {%- set ns.system = '<<SYS>>\\n' + message.content + '\\n<</SYS>>\\n\\n' %}
    {%- elif message.role == ('assistant' if ns.turns % 2 else 'user') %}
        {%- if message.role == 'user' %}
            {{- bos_token + '[INST] ' + (ns.system + message.content) | trim + ' [/INST]' }}
            {%- set ns.system = '' %}
        {%- else %}
            {{- ' ' + message.content | trim + ' ' + eos_token }}
        {%- endif %}
        {%- set ns.turns = ns.turns + 1 %}
    {%- else %}
        {{- raise_exception('Llama 2 takes a system message, then user and assistant in turn') }}
    {%- endif %}
{%- endfor %}"""
)

_HARMONY: Final = (
    _NO_TOOLS
    + """
{{- '<|start|>system<|message|>' + (model_identity or 'You are ChatGPT, a large language model trained by OpenAI.') }}
{{- '\\nKnowledge cutoff: 2024-06\\nCurrent date: ' + strftime_now('%Y-%m-%d') }}
{{- '\\n\\nReasoning: ' + (reasoning_effort or 'medium') }}
{{- '\\n\\n# Valid channels: analysis, commentary, final. Channel must be included for every message.<|end|>' }}
{%- for message in messages %}
    {%- if message.role in ('system', 'developer') %}
        {{- '<|start|>developer<|message|># Instructions\\n\\n' + message.content + '<|end|>' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|start|>assistant<|channel|>final<|message|>' + message.content + '<|end|>' }}
    {%- elif message.role == 'user' %}
        {{- '<|start|>user<|message|>' + message.content + '<|end|>' }}
    {%- else %}
        {{- raise_exception('roles are system, developer, user and assistant, not ' + message.role) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"""
)

_BY_TOKENS: Final = (
    (("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"), "Llama 3", _LLAMA3),
    (("<|start|>", "<|message|>", "<|channel|>", "<|end|>"), "Harmony", _HARMONY),
    (("<|im_start|>", "<|im_end|>"), "ChatML", _CHATML),
)
_LLAMA2_SIZES: Final = range(32_000, 32_064)  # Llama 2's own vocabulary, perhaps with a few tokens added


def find_builtin(special_ids: Mapping[str, int], vocab_size: int) -> tuple[str, str] | None:
    """(name, source) of the template that a vocabulary asks for; None when it says nothing of conversations."""
    for tokens, name, source in _BY_TOKENS:
        if all(token in special_ids for token in tokens):
            return name, source
    if vocab_size in _LLAMA2_SIZES and special_ids.get("<s>") == 1 and special_ids.get("</s>") == 2:
        return "Llama 2", _LLAMA2
    return None
