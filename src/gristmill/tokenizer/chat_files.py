"""Where a model's chat template is: in its GGUF file, beside its tokenizer, in a file the user names, or built in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gristmill.formats.checkpoint import Checkpoint
from gristmill.tokenizer.chat import ChatTemplate
from gristmill.tokenizer.chat_builtin import find_builtin
from gristmill.tokenizer.interface import TemplateError, Tokenizer, TokenizerError
from gristmill.tokenizer.json_fields import Fields, read_json

_GGUF_KEY: Final = "tokenizer.chat_template"
_MAX_FILE_BYTES: Final = 1 << 20


def load_chat_template(
    checkpoint: Checkpoint, tokenizer: Tokenizer, *, file: Path | None = None, tokenizer_path: Path | None = None
) -> ChatTemplate:
    """The chat template of a model, all its named ones included.

    file            a Jinja2 file to take instead
    tokenizer_path  where the tokenizer came from when it is not the model's own; a template beside it counts first
    Raises TemplateError (a ValueError) when there is none. What is in a template is not looked at until it is rendered.
    """
    if file is not None:
        text = _read_file(file)
        if not text.strip():
            raise TemplateError(f"{file}: is empty; a chat template is a Jinja2 file")
        return _make(tokenizer, {"": text}, str(file))
    found, where = _find_templates(checkpoint, tokenizer_path)
    if found:
        return _make(tokenizer, found, where)
    builtin = find_builtin(tokenizer.special_ids, tokenizer.vocab_size)
    if builtin is None:
        raise TemplateError(f"{checkpoint.path}: this model has no chat template; give --chat-template FILE")
    return _make(tokenizer, {"": builtin[1]}, f"built-in chat template {builtin[0]}")


def read_model_templates(checkpoint: Checkpoint, tokenizer_path: Path | None = None) -> dict[str, str]:
    """Templates by name ("" for the default one) in a model's own files, or beside its tokenizer."""
    return _find_templates(checkpoint, tokenizer_path)[0]


def _find_templates(checkpoint: Checkpoint, tokenizer_path: Path | None) -> tuple[dict[str, str], str]:
    places = [_folder_of(tokenizer_path)] if tokenizer_path is not None else []
    if checkpoint.format != "gguf":
        places.append(_folder_of(checkpoint.path))
    for folder in places:
        if found := read_folder_templates(folder):
            return found, f"{folder}: chat template"
    return read_gguf_templates(checkpoint.metadata, str(checkpoint.path)), f"{checkpoint.path}: {_GGUF_KEY}"


def read_gguf_templates(metadata: Mapping[str, Any], where: str) -> dict[str, str]:
    """Templates by name ("" for the default one) in a GGUF file's metadata."""
    found: dict[str, str] = {}
    for key, value in metadata.items():
        if key != _GGUF_KEY and not key.startswith(_GGUF_KEY + "."):
            continue
        text = value.decode(errors="replace") if isinstance(value, bytes) else value
        if not isinstance(text, str):
            raise TemplateError(f"{where}: {key} is {text!r:.80}, not a string")
        found[key.removeprefix(_GGUF_KEY).removeprefix(".")] = text
    return _settled(found)


def read_folder_templates(folder: Path) -> dict[str, str]:
    """Templates by name in a model's folder; *.jinja files count before what tokenizer_config.json says."""
    found: dict[str, str] = {}
    for name in ("tokenizer_config.json", "chat_template.json"):
        if (folder / name).is_file():
            found |= _read_fields(folder / name)
    if (folder / "chat_template.jinja").is_file():
        found[""] = _read_file(folder / "chat_template.jinja")
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        found[path.stem] = _read_file(path)
    return _settled(found)


def _read_fields(path: Path) -> dict[str, str]:
    try:
        return _read_field(read_json(path))
    except TokenizerError as error:  # a vocabulary needs none of this
        raise TemplateError(str(error)) from None


def _read_field(fields: Fields) -> dict[str, str]:
    if not isinstance(fields.get("chat_template"), list):
        text = fields.text("chat_template")
        return {} if text is None else {"": text}
    items = fields.children("chat_template")
    return {item.need_text("name"): item.need_text("template") for item in items}


def _settled(found: dict[str, str]) -> dict[str, str]:
    """Those that say anything, one of them the default."""
    found = {name: text for name, text in found.items() if text.strip()}
    if "default" in found:
        found.setdefault("", found.pop("default"))
    if found and "" not in found:
        found[""] = next(iter(found.values()))
    return found


def _read_file(path: Path) -> str:
    try:
        with path.open("rb") as file:  # which may be a pipe
            data = file.read(_MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise TemplateError(f"{path}: no such file; a chat template is a Jinja2 file") from None
    except OSError as error:
        raise TemplateError(f"{path}: {error.strerror}; a chat template is a Jinja2 file") from None
    if len(data) > _MAX_FILE_BYTES:
        raise TemplateError(f"{path}: has more than {_MAX_FILE_BYTES} bytes; this is no chat template")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise TemplateError(f"{path}: is no UTF-8 text: {error}") from None


def _make(tokenizer: Tokenizer, found: dict[str, str], where: str) -> ChatTemplate:
    by_id = {token_id: text for text, token_id in tokenizer.special_ids.items()}

    def text_of(token_id: int | None) -> str | None:
        return None if token_id is None else by_id.get(token_id) or tokenizer.token_text(token_id)

    return ChatTemplate(
        found[""],
        bos_token=text_of(tokenizer.bos_id),
        eos_token=text_of(tokenizer.eos_ids[0] if tokenizer.eos_ids else None),
        named={name: source for name, source in found.items() if name},
        where=where,
    )


def _folder_of(path: Path) -> Path:
    return path if path.is_dir() else path.parent
