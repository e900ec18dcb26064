"""What begins with a stroke in a chat: /set, /save and so on. Each is a function of the loop and of what follows it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gristmill.cli.chat_screen import unquote
from gristmill.cli.chat_session import SETTINGS, THINK, Conversation, check_name, load, read_setting, save

if TYPE_CHECKING:
    from gristmill.cli.chat_repl import Repl

_COMMAND: Final = re.compile(r"/([a-z?]+)(?:\s+(.*))?\s*", re.DOTALL)

_HELP: Final = """\
/set NAME VALUE    change how answers are chosen; /set NAME default sets it back, /set alone lists all
/show              the model, the system message, the settings
/system TEXT       set the system message; /system - removes it
/think on|off      whether to think first, where the model's template knows that; low, medium, high: how much
/regenerate        another answer to the last message
/clear             begin a new conversation (/reset); system message and settings stay
/save FILE         write the conversation as JSON
/load FILE         go on with one that was saved; what it does not set stays as it is
/tokens            ids and texts of the last prompt and its answer
/bye               leave (/exit, /quit, Ctrl-D)

\"""                begins a message of several lines, and ends it; pasted lines stay together by themselves
Ctrl-C             stops an answer; at the prompt it clears the line
Ctrl-G             writes the message in $EDITOR
Alt-Enter          a line more"""


def find(text: str) -> tuple[str, str] | None:
    """A command and what follows it; None for a message. A path such as /usr/bin is none."""
    match = _COMMAND.fullmatch(text.strip())
    return None if match is None else (match[1], match[2] or "")


def run(repl: Repl, name: str, rest: str) -> bool:
    """Do it. False: leave. ValueError and OSError say what is wrong, and nothing was changed."""
    if name in ("bye", "exit", "quit"):
        return False
    if name not in _COMMANDS:
        raise ValueError(
            f"/{name} is no command: see /help. A message that begins so can stand in three quotation marks"
        )
    _COMMANDS[name](repl, rest.strip())
    return True


def names() -> list[str]:
    """For completion."""
    return sorted(f"/{name}" for name in (*_COMMANDS, "bye", "exit", "quit") if name != "?")


def _set(repl: Repl, rest: str) -> None:
    name, *value = rest.split(maxsplit=1)[:2] if rest else ("",)
    if not name:
        repl.screen.show("\n".join(_settings(repl)))
        return
    if not value:
        check_name(name)
        repl.screen.show(_setting(repl, name))
        return
    text = value[0].strip()
    back = text.lower() in ("default", "none") or (name, text) == ("max_tokens", "-1")
    check_name(name)
    repl.conversation.change(name, None if back else read_setting(name, text))
    repl.screen.note(_setting(repl, name))


def _show(repl: Repl, rest: str) -> None:
    talk, backend = repl.conversation, repl.backend
    context = "" if backend.context is None else f", context {backend.context:,} tokens"
    lines = [f"model   {backend.name}{context}", f"system  {'none' if talk.system is None else talk.system}"]
    lines += [f"think   {talk.think or 'as the model would'}", f"        {len(talk.messages)} messages"]
    repl.screen.show("\n".join([*lines, *_settings(repl)]))


def _clear(repl: Repl, rest: str) -> None:
    repl.conversation.messages.clear()
    repl.tally = None
    repl.screen.note("a new conversation")


def _system(repl: Repl, rest: str) -> None:
    talk = repl.conversation
    if not rest:
        repl.screen.show("no system message" if talk.system is None else talk.system)
        return
    changed = Conversation(talk.messages, None if rest == "-" else unquote(rest)[0], talk.settings, talk.think)
    repl.backend.check(changed)
    talk.system = changed.system
    repl.screen.note("no system message" if talk.system is None else "the system message is set")


def _think(repl: Repl, rest: str) -> None:
    talk = repl.conversation
    if rest not in (*THINK, "default"):
        raise ValueError(f"/think takes {', '.join(THINK)} or default, not {rest!r:.40}")
    think = None if rest == "default" else rest
    repl.backend.check(Conversation(talk.messages, talk.system, talk.settings, think))
    talk.think = think
    repl.screen.note(f"think: {think or 'as the model would'}")


def _save(repl: Repl, rest: str) -> None:
    path = _path("save", rest)
    save(path, repl.conversation, repl.backend.name)
    repl.screen.note(f"{len(repl.conversation.messages)} messages are in {path}")


def _load(repl: Repl, rest: str) -> None:
    path = _path("load", rest)
    loaded, before = load(path), repl.conversation
    unsaid = [name for name in ("system", "settings", "think") if getattr(loaded, name) in (None, {})]
    kept = [name for name in unsaid if getattr(before, name)]
    for name in kept:
        setattr(loaded, name, getattr(before, name))
    repl.backend.check(loaded)
    repl.conversation = loaded
    repl.tally = None
    stays = f"; it says nothing of {' and '.join(kept)}: what was set stays" if kept else ""
    repl.screen.note(f"{len(loaded.messages)} messages from {path}{stays}")


def _regenerate(repl: Repl, rest: str) -> None:
    messages = repl.conversation.messages
    if not any(message["role"] == "user" for message in messages):
        raise ValueError("there is no message to answer yet")
    before = list(messages)
    while messages[-1]["role"] == "assistant":
        messages.pop()
    if not repl.answer():
        repl.go_back(before)


def _tokens(repl: Repl, rest: str) -> None:
    tally, text = repl.backend.tally, repl.backend.token_text
    if tally is None:
        raise ValueError("there is no answer yet")
    text(0)  # says so where ids are not known
    for what, ids in (("prompt", tally.prompt_ids), ("answer", tally.output_ids)):
        shown = " ".join(f"{i}:{text(i)!r}" for i in ids)
        repl.screen.show(f"{what}, {len(ids)} tokens: {shown}")


def _help(repl: Repl, rest: str) -> None:
    repl.screen.show(_HELP)


_COMMANDS: Final[Mapping[str, Callable[[Repl, str], None]]] = {
    "set": _set,
    "show": _show,
    "clear": _clear,
    "reset": _clear,
    "system": _system,
    "think": _think,
    "save": _save,
    "load": _load,
    "regenerate": _regenerate,
    "tokens": _tokens,
    "help": _help,
    "?": _help,
}


def _path(command: str, text: str) -> Path:
    if not text:
        raise ValueError(f"/{command} needs the name of a file")
    return Path(os.path.expanduser(text))


def _settings(repl: Repl) -> list[str]:
    return [_setting(repl, name) for name in SETTINGS]


def _setting(repl: Repl, name: str) -> str:
    if name in repl.conversation.settings:
        return f"{name} = {_written(repl.conversation.settings[name])}"
    found = repl.backend.defaults(repl.conversation).get(name)
    return f"{name} is not set" + ("" if found is None else f" ({found[1]}'s default: {found[0]})")


def _written(value: object) -> str:
    return ", ".join(map(repr, value)) if isinstance(value, tuple) else str(value)
