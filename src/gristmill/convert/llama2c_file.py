"""A Llama 2 model as llama2.c's `.bin`; whatever that program takes for granted and the model has not is refused."""

from __future__ import annotations

import filecmp
import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gristmill.convert.job import Job
from gristmill.convert.parts import list_parts
from gristmill.formats.checkpoint import ModelFormatError, bad_file
from gristmill.formats.qtypes import QType
from gristmill.formats.write_file import new_file
from gristmill.formats.write_llama2c import Llama2cShape, write_llama2c
from gristmill.models.families import names_in
from gristmill.models.rope_fields import read_rope
from gristmill.tokenizer.write import write_llama2c as write_tokenizer

logger = logging.getLogger(__name__)

_TOKENIZER = "tokenizer.bin"
_THETA, _EPS = 10000.0, 1e-5


def write(job: Job, version: int) -> int:
    """Write job.out as version 0, 1 or 2, the vocabulary to tokenizer.bin beside it; how many bytes."""
    if job.out.name == _TOKENIZER:
        raise ValueError(f"{job.out}: is the name of the vocabulary beside a model; give another name")
    _check(job)
    c = job.config
    parts = {part.name: part for part in list_parts(job.checkpoint, c, names_in("llama2c", c.arch))}
    if biases := [name for name in parts if name.endswith(".bias")]:
        raise _refuse(job, f"has biases ({biases[0]})")
    shape = Llama2cShape(
        c.d_model, c.d_ff, c.n_layers, c.n_heads, c.n_kv_heads, c.vocab_size, c.max_context, c.tied_head
    )

    def produce(name: str, group: int) -> Iterator[Any]:
        return job.pieces(parts[name], QType.F32, group)

    with _tokenizer(job) as tokenizer:
        n_bytes = write_llama2c(job.out, version, shape, produce)
        if tokenizer is not None:
            n_bytes += _place(tokenizer, job.out.with_name(_TOKENIZER))
    return n_bytes


def _check(job: Job) -> None:
    c = job.config
    rope = read_rope(job.checkpoint, c.arch, c.head_dim)
    kind = rope.kind if rope.divisors is None else "llama3"
    if c.arch != "llama":
        raise _refuse(job, f"is {c.arch}")
    if kind != "none" or rope.theta != _THETA:
        raise _refuse(job, f"rotates with theta {rope.theta:g} and scaling {kind}, not {_THETA:g} and none")
    if rope.scale != 1:
        raise _refuse(job, f"has an attention factor (rope.scaling.attn_factor) of {rope.scale:g}")
    if abs(c.norm_eps / _EPS - 1) > 1e-3:
        raise _refuse(job, f"has norms with epsilon {c.norm_eps:g}, not {_EPS:g}")
    if c.head_dim * c.n_heads != c.d_model:
        raise _refuse(job, f"has {c.n_heads} heads of {c.head_dim} dimensions, which is not its width of {c.d_model}")
    if any(c.windows):
        raise _refuse(job, "has sliding windows")


def _refuse(job: Job, problem: str) -> ModelFormatError:
    return bad_file(job.checkpoint.path, "model", f"{problem}, and llama2.c runs Llama 2 alone", "write GGUF instead")


@contextmanager
def _tokenizer(job: Job) -> Iterator[Path | None]:
    """The tokenizer.bin that the model has or is to get, None where there is none. TokenizerError names what such a
    file cannot say of a vocabulary."""
    with tempfile.TemporaryDirectory() as folder:
        path = _folder(job.checkpoint.path) / _TOKENIZER
        if job.vocabulary is not None:
            path = Path(folder) / _TOKENIZER
            write_tokenizer(job.vocabulary, path)
        yield path if path.is_file() else None


def _place(tokenizer: Path, beside: Path) -> int:
    """tokenizer.bin beside the model, unless one is there; how many bytes were written."""
    if not beside.exists():
        with new_file(beside, tokenizer.stat().st_size) as file:
            return file.write(tokenizer.read_bytes())
    if not filecmp.cmp(tokenizer, beside, shallow=False):
        logger.warning("%s is there already and was kept; the model's own differs", beside)
    return 0


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent
