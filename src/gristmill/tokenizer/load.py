"""Which tokenizer belongs to a checkpoint, or to a file that the user names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gristmill.formats.checkpoint import Checkpoint
from gristmill.tokenizer.interface import MissingTokenizerError, Tokenizer
from gristmill.tokenizer.vocabulary import Vocabulary


def load_tokenizer(checkpoint: Checkpoint, override: Path | None = None) -> Tokenizer:
    """The tokenizer of `checkpoint`, or the one in `override`: a file of any supported kind, or a folder with one.

    Raises MissingTokenizerError when there is none, another TokenizerError when it is broken or not supported; the
    message names file and field.
    """
    from gristmill.tokenizer.build import make_tokenizer

    return make_tokenizer(_read(checkpoint, override))


def vocabulary_of(checkpoint: Checkpoint, override: Path | None = None) -> Vocabulary | None:
    """What `load_tokenizer` makes a tokenizer of, with the model's chat templates; None when there is none.

    Raises TokenizerError or TemplateError when it is broken or not supported.
    """
    from gristmill.tokenizer.chat_files import read_model_templates

    try:
        vocabulary = _read(checkpoint, override)
    except MissingTokenizerError:
        return None
    return replace(vocabulary, chat_templates=read_model_templates(checkpoint, override))


def _read(checkpoint: Checkpoint, override: Path | None) -> Vocabulary:
    if override is None and checkpoint.format == "gguf":
        if "tokenizer.ggml.model" not in checkpoint.metadata:
            raise MissingTokenizerError(
                f"{checkpoint.path}: the file has no vocabulary: give one with --tokenizer FILE"
            )
        from gristmill.tokenizer.gguf_vocab import read_gguf_vocabulary  # what other kinds need takes 20 ms to import

        return read_gguf_vocabulary(checkpoint.metadata, str(checkpoint.path))
    from gristmill.tokenizer.files import read_path

    folder = checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent
    vocabulary = read_path(folder if override is None else override, _llama2c_vocabulary(checkpoint))
    if not _is_llama2c(checkpoint) or vocabulary.bos_id is None:
        return vocabulary
    # The texts that llama2.c trains on have no other end than the BOS of the next, and its `run` stops there.
    ends = dict.fromkeys((*vocabulary.named_end_ids, vocabulary.bos_id))
    return replace(vocabulary, named_end_ids=tuple(ends))


def _is_llama2c(checkpoint: Checkpoint) -> bool:
    """What it exports, or its train.py's own checkpoint."""
    return checkpoint.format == "llama2c" or (checkpoint.path.suffix == ".pt" and not checkpoint.path.is_dir())


def _llama2c_vocabulary(checkpoint: Checkpoint) -> int | None:
    if not _is_llama2c(checkpoint):
        return None
    size = checkpoint.metadata.get("vocab_size")
    return abs(size) if isinstance(size, int) else None
