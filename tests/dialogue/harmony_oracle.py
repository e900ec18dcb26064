"""openai-harmony, the reference for its format, without the network; and the vocabulary of gpt-oss."""

from __future__ import annotations

import functools
import gzip
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gristmill.dialogue.harmony_render import Message, SystemContent
from gristmill.dialogue.harmony_tools import ToolNamespace
from gristmill.tokenizer.core import CodecTokenizer
from gristmill.tokenizer.tiktoken_file import load_tiktoken

DATA = Path(os.environ.get("GRISTMILL_DATA", Path(__file__).parents[3] / "shared" / "data"))
RANKS = DATA / "tokenizers" / "o200k_base.tiktoken.gz"


def load_oracle(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Its encoding. Skips where the package or the ranks are missing."""
    pytest.importorskip("openai_harmony", reason="openai-harmony is not installed")
    if not RANKS.exists():
        pytest.skip(f"{RANKS} is not there; set GRISTMILL_DATA")
    if "TIKTOKEN_ENCODINGS_BASE" not in os.environ:
        folder = tmp_path_factory.mktemp("ranks")
        (folder / "o200k_base.tiktoken").write_bytes(gzip.decompress(RANKS.read_bytes()))
        os.environ["TIKTOKEN_ENCODINGS_BASE"] = str(folder)
    return _encoding()


@functools.cache
def _encoding() -> Any:
    from openai_harmony import load_harmony_encoding

    return load_harmony_encoding("HarmonyGptOss")


@functools.cache
def o200k() -> CodecTokenizer:
    return load_tiktoken(RANKS)


def _namespaces(namespaces: Sequence[ToolNamespace]) -> dict[str, Any]:
    from openai_harmony import ToolDescription, ToolNamespaceConfig

    return {
        namespace.name: ToolNamespaceConfig(
            name=namespace.name,
            description=namespace.description,
            tools=[ToolDescription.new(t.name, t.description, t.parameters) for t in namespace.tools],
        )
        for namespace in namespaces
    }


def _message(message: Message) -> Any:
    import openai_harmony as oh

    content: Any = message.content
    if isinstance(content, SystemContent):
        content = oh.SystemContent(
            model_identity=content.identity,
            reasoning_effort=content.effort.capitalize() if content.effort else None,
            conversation_start_date=content.date,
            knowledge_cutoff=content.knowledge_cutoff,
            channel_config=oh.ChannelConfig.require_channels(list(content.channels)),
            tools=_namespaces(content.namespaces),
        )
    elif not isinstance(content, str):
        content = oh.DeveloperContent(instructions=content.instructions, tools=_namespaces(content.namespaces))
    known = message.role in ("system", "developer", "user", "assistant")
    author = oh.Author(role=message.role) if known else oh.Author.new(oh.Role.TOOL, message.role)
    made = oh.Message.from_author_and_content(author, content)
    made.channel, made.recipient, made.content_type = message.channel, message.recipient, message.content_type
    return made


def to_oracle(messages: Sequence[Message], *, for_answer: bool, drop_analysis: bool) -> list[int]:
    """Ids that the reference renders."""
    import openai_harmony as oh

    conversation = oh.Conversation.from_messages([_message(message) for message in messages])
    config = oh.RenderConversationConfig(auto_drop_analysis=drop_analysis)
    if for_answer:
        return list(_encoding().render_conversation_for_completion(conversation, oh.Role.ASSISTANT, config))
    return list(_encoding().render_conversation(conversation, config))
