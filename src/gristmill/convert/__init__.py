"""From any readable checkpoint to GGUF, a safetensors folder or llama2.c's `.bin`, in any number type they have."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path

from gristmill.convert import folder, gguf_file, llama2c_file, vocabulary
from gristmill.convert.job import Job, Progress
from gristmill.formats.checkpoint import Checkpoint, shown_path
from gristmill.formats.mapped import place_of
from gristmill.formats.quantize_rows import RowQuantizer
from gristmill.formats.write_types import CONVERT_TYPES, FLOAT_TYPES
from gristmill.models.families import NO_HEAD, with_head
from gristmill.models.hyperparameters import read_config
from gristmill.types import ModelConfig

logger = logging.getLogger(__name__)

OUT_FORMATS = ("gguf", "safetensors", "llama2c", "llama2c-v0", "llama2c-v1", "llama2c-v2")


@dataclass(frozen=True, slots=True)
class Report:
    """What a conversion did. bytes_in: of all tensors as they were stored; bytes_out: of all files written."""

    out: str
    format: str
    bytes_in: int
    bytes_out: int
    bytes_by_type: dict[str, int]
    vocabulary: bool
    seconds: float


def convert(
    checkpoint: Checkpoint,
    out: Path,
    *,
    label: str | None = None,
    out_format: str | None = None,
    tokenizer: Path | None = None,
    n_threads: int = 1,
    progress: Progress | None = None,
) -> Report:
    """Write `checkpoint` to `out`, whole or not at all.

    label       one of CONVERT_TYPES; None keeps the types that are stored, as far as the format has them
    out_format  one of OUT_FORMATS; None: by the ending of `out`
    tokenizer   a vocabulary to take instead of the model's own
    progress    progress(bytes done, bytes in all), of the tensors as they are stored
    Raises ValueError for what a format or type cannot hold (ModelFormatError where that is the model's), WriteError
    where the disk cannot.
    """
    start = time.perf_counter()
    kind = out_format or format_of(out)
    said = read_config(checkpoint)
    config = with_head(checkpoint, said)
    if config.tied_head and not said.tied_head:
        logger.warning(NO_HEAD, shown_path(checkpoint.path))
    _check(checkpoint, config, out, tokenizer, label, kind)
    job = Job(
        checkpoint=checkpoint,
        config=config,
        out=out,
        name=_name(checkpoint.path),
        quantizer=RowQuantizer(n_threads),
        vocabulary=vocabulary.to_write(checkpoint, kind.split("-")[0], tokenizer, config.vocab_size),
        progress=progress,
        total=sum(_stored_bytes(checkpoint, name) for name in checkpoint.names()),
    )
    has_vocabulary = job.vocabulary is not None or vocabulary.is_copied(checkpoint, kind.split("-")[0])
    if not has_vocabulary:
        logger.warning(
            "%s: no vocabulary was found in or beside it, so none is written; give one with --tokenizer FILE",
            shown_path(checkpoint.path),
        )
    if kind == "gguf":
        n_bytes = gguf_file.write(job, label)
    elif kind == "safetensors":
        n_bytes = folder.write(job, label)
    else:
        n_bytes = llama2c_file.write(job, _llama2c_version(kind, label))
    return Report(str(out), kind, job.total, n_bytes, dict(job.types), has_vocabulary, time.perf_counter() - start)


def format_of(out: Path) -> str:
    """By its ending, in any case: .gguf, .bin (llama2c), none or a folder that is there (safetensors). Qwen3-0.6B ends
    in none. ValueError for others, which may be a slip of the hand."""
    endings = {".gguf": "gguf", ".bin": "llama2c"}
    ending = out.suffix.lower()
    if ending in endings:
        return endings[ending]
    if out.is_dir() or not ending[1:].isalpha():
        return "safetensors"
    raise ValueError(
        f"{out}: {out.suffix!r} names no format; end it in .gguf or .bin, in / for a folder, or give --format"
    )


def _check(
    checkpoint: Checkpoint, config: ModelConfig, out: Path, tokenizer: Path | None, label: str | None, kind: str
) -> None:
    if kind not in OUT_FORMATS:
        raise ValueError(f"format is {kind!r}; use one of {', '.join(OUT_FORMATS)}")
    if label is not None and label not in CONVERT_TYPES:
        raise ValueError(f"type is {label!r}; use one of {', '.join(CONVERT_TYPES)}")
    types = (*FLOAT_TYPES, "mxfp4") if config.arch == "gpt-oss" else FLOAT_TYPES
    if kind == "safetensors" and label not in (None, *types):
        raise ValueError(f"type {label} has no place in safetensors; use {', '.join(types)}, or write GGUF: OUT.gguf")
    if out.exists() and out.resolve() == checkpoint.path.resolve():
        raise ValueError(f"{out}: is the model that is read; give another name")
    if out.is_file() and any(os.path.samestat(os.fstat(file), out.stat()) for file in _open_files(checkpoint)):
        raise ValueError(f"{out}: is a part of the model that is read; give another name")
    if out.is_file() and tokenizer is not None and tokenizer.exists() and out.samefile(tokenizer):
        raise ValueError(f"{out}: is the vocabulary that is read; give another name")
    if out.is_dir() and kind != "safetensors":
        raise ValueError(f"{out}: is a folder; {kind} is one file")


def _open_files(checkpoint: Checkpoint) -> set[int]:
    """Descriptors of the files that its tensors are mapped from."""
    places = (place_of(checkpoint.get(name).data) for name in checkpoint.names())
    return {place[1] for place in places if place is not None}


def _llama2c_version(kind: str, label: str | None) -> int:
    """v0 for float32 and v2 for q8_0 unless one is named."""
    version = {"llama2c": 2 if label == "q8_0" else 0}.get(kind, int(kind[-1]) if kind[-1].isdigit() else 0)
    wanted = "q8_0" if version == 2 else "f32"
    if label not in (None, wanted):
        raise ValueError(f"type {label} has no place in llama2.c's version {version}, which holds {wanted}")
    return version


def _stored_bytes(checkpoint: Checkpoint, name: str) -> int:
    return checkpoint.get(name).data.nbytes


def _name(path: Path) -> str:
    """The file's or the folder's; in the hub's cache, where a folder has its revision's name, the repository's."""
    if not path.is_dir():
        return path.stem
    folder = path.absolute()
    return folder.parents[1].name.rpartition("--")[2] if folder.parent.name == "snapshots" else folder.name
