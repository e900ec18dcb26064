"""The tools that gpt-oss was trained with, as namespaces: texts that the model knows word by word.

Source: github.com/openai/harmony."""

from __future__ import annotations

from typing import Any, Final

from gristmill.dialogue.harmony_tools import ToolNamespace
from gristmill.dialogue.types import Tool

_NUMBER: Final[dict[str, Any]] = {"type": "number", "default": -1}
_TEXT: Final[dict[str, Any]] = {"type": "string"}


def browser() -> ToolNamespace:
    """Web search: browser.search, browser.open, browser.find."""
    return ToolNamespace(
        "browser",
        "Tool for browsing.\n"
        "The `cursor` appears in brackets before each browsing display: `[{cursor}]`.\n"
        "Cite information from the tool using the following format:\n"
        "`【{cursor}†L{line_start}(-L{line_end})?】`, for example: `【6†L9-L11】` or `【8†L3】`.\n"
        "Do not quote more than 10 words directly from the tool output.\n"
        "sources=web (default: web)",
        (
            Tool(
                "search",
                "Searches for information related to `query` and displays `topn` results.",
                {
                    "type": "object",
                    "properties": {"query": _TEXT, "topn": {"type": "number", "default": 10}, "source": _TEXT},
                    "required": ["query"],
                },
            ),
            Tool(
                "open",
                "Opens the link `id` from the page indicated by `cursor` starting at line number `loc`,"
                " showing `num_lines` lines.\n"
                "Valid link ids are displayed with the formatting: `【{id}†.*】`.\n"
                "If `cursor` is not provided, the most recent page is implied.\n"
                "If `id` is a string, it is treated as a fully qualified URL associated with `source`.\n"
                "If `loc` is not provided, the viewport will be positioned at the beginning of the document or"
                " centered on the most relevant passage, if available.\n"
                "Use this function without `id` to scroll to a new location of an opened page.",
                {
                    "type": "object",
                    "properties": {
                        "id": {"type": ["number", "string"], "default": -1},
                        "cursor": _NUMBER,
                        "loc": _NUMBER,
                        "num_lines": _NUMBER,
                        "view_source": {"type": "boolean", "default": False},
                        "source": _TEXT,
                    },
                },
            ),
            Tool(
                "find",
                "Finds exact matches of `pattern` in the current page, or the page given by `cursor`.",
                {"type": "object", "properties": {"pattern": _TEXT, "cursor": _NUMBER}, "required": ["pattern"]},
            ),
        ),
    )


def python() -> ToolNamespace:
    """A Jupyter notebook: the message to `python` is code."""
    return ToolNamespace(
        "python",
        "Use this tool to execute Python code in your chain of thought. The code will not be shown to the user. This"
        " tool should be used for internal reasoning, but not for code that is intended to be visible to the user"
        " (e.g. when creating plots, tables, or files).\n"
        "\n"
        "When you send a message containing Python code to python, it will be executed in a stateful Jupyter notebook"
        " environment. python will respond with the output of the execution or time out after 120.0 seconds. The drive"
        " at '/mnt/data' can be used to save and persist user files. Internet access for this"
        " session is UNKNOWN. Depends on the cluster.",
    )
