"""Which models a repository holds, by the names of its files, and which one a name means. It opens no file."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from gristmill.hub.names import HubError, HubName

SAFETENSORS: Final = "safetensors"
PREFERRED: Final = ("Q4_K_M", "Q8_0")
"""What a name without QUANT means where there are several .gguf models: the first of these that is there."""

_QUANT = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q\d+(?:_[0-9A-Z]+)*|TQ\d_\d|MXFP4(?:_MOE)?|NVFP4|BF16|FP?16|FP?32))(?=[-./]|$)", re.I
)
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5,6})")  # six as DeepSeek writes it
_NO_MODEL = re.compile(r"mmproj|^imatrix", re.I)
_INDEX: Final = "model.safetensors.index.json"
_BESIDE: Final = frozenset(
    {
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer.model",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "merges.txt",
        "chat_template.json",
        "chat_template.jinja",
        _INDEX,
    }
)


@dataclass(frozen=True, slots=True)
class Variant:
    """A model of a repository: what a person calls it, and its files in the order in which to fetch them."""

    label: str
    files: tuple[str, ...]

    @property
    def entry(self) -> str:
        """What to open: the first of its files, or the folder of them all."""
        return "" if self.label == SAFETENSORS else self.files[0]

    def is_called(self, quant: str) -> bool:
        path = PurePosixPath(self.files[0])
        names = (self.label,) if self.label == SAFETENSORS else (self.label, path.name, path.stem, str(path))
        return quant.lower() in map(str.lower, names)


def variants(files: Iterable[str]) -> list[Variant]:
    """The whole models among a repository's files (paths with `/`); a split model that lacks parts is none."""
    names = sorted(files)
    found = _gguf(names)
    folder = _safetensors([name for name in names if "/" not in name or name.startswith("additional_chat_templates/")])
    return found + ([folder] if folder is not None else [])


def choose(name: HubName, there: Sequence[Variant], place: str) -> Variant:
    """The model that `name` means. HubError, with what there is to choose from, for none or more than one.

    place  where these are, for the error's text
    """
    choices = ", ".join(variant.label for variant in there)
    if not there:
        raise HubError(f"{name}: {place} has neither .gguf nor .safetensors files of a whole model of that name")
    if name.quant is not None:
        called = [variant for variant in there if variant.is_called(name.quant)]
        if not called:
            raise HubError(f"{name}: {place} has no {name.quant} of this model; it has {choices}")
        return called[0]
    if len(there) == 1:
        return there[0]
    if not any(variant.label == SAFETENSORS for variant in there):
        for label in PREFERRED:
            for variant in there:
                if variant.label == label:
                    return variant
    raise HubError(f"{name}: {place} has several models of this name; choose one: {name.repo}:QUANT of {choices}")


def _gguf(names: Sequence[str]) -> list[Variant]:
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        path = PurePosixPath(name)
        if path.suffix.lower() == ".gguf" and _is_model(path):
            groups[_without_part(str(path.with_suffix("")))].append(name)
    whole = {stem: tuple(files) for stem, files in groups.items() if _is_whole(files)}
    labels = {stem: _label(stem) for stem in whole}
    times = Counter(labels.values())
    return [Variant(labels[s] if times[labels[s]] == 1 else files[0], files) for s, files in whole.items()]


def _safetensors(names: Sequence[str]) -> Variant | None:
    """config.json, the vocabulary, the weights last; other copies of the weights (`consolidated`) are left out."""
    weights = [name for name in names if name.endswith(".safetensors") and not name.startswith("adapter")]
    shards = [name for name in weights if re.fullmatch(r"model-\d{5}-of-\d{5,6}\.safetensors", name)]
    if shards and _INDEX in names:
        weights = shards
    elif "model.safetensors" in weights:
        weights = ["model.safetensors"]
    if not weights or "config.json" not in names or not _is_whole(weights):
        return None
    beside = [n for n in names if n in _BESIDE or n.endswith((".tiktoken", ".jinja"))]
    return Variant(SAFETENSORS, (*beside, *weights))


def _is_model(path: PurePosixPath) -> bool:
    """An importance matrix is none, but what was quantized by one may say so in its name."""
    quantized = (quant for quant in _QUANT.findall(path.stem) if not quant.endswith(("16", "32")))
    return not _NO_MODEL.search(path.name) and ("imatrix" not in path.stem.lower() or any(quantized))


def _label(stem: str) -> str:
    quants = _QUANT.findall(stem)
    return quants[-1].upper() if quants else PurePosixPath(stem).name


def _without_part(stem: str) -> str:
    match = _PART.fullmatch(stem)
    return match[1] if match else stem


def _is_whole(files: Sequence[str]) -> bool:
    """Whether files that are numbered `-00001-of-00003` are all there."""
    parts = [match for file in files if (match := _PART.fullmatch(PurePosixPath(file).stem))]
    return not parts or {int(part[2]) for part in parts} >= set(range(1, int(parts[0][3]) + 1))
