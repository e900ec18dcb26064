"""Finds texts and cuts them into documents: text files, JSONL with `text`, TinyStories' JSON lists with `story`.

A text file's documents are what stands between separators; without any the file is one document.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SEPARATOR = "<|endoftext|>"
SUFFIXES = (".txt", ".jsonl", ".json")
PIECE_BYTES = 16 << 20
"""Files are read and tokenized in pieces of about this size, each by one process."""
_DATASETS = {"tinystories": ("roneneldan/TinyStories", ("TinyStoriesV2-GPT4-train.txt",))}
DATASETS = tuple(_DATASETS)


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes begin .. end of a file."""

    path: str
    begin: int
    end: int


def find_files(paths: Sequence[str | Path]) -> list[Path]:
    """Files as they are given, and of folders all with a known suffix, in order. ValueError where there is none."""
    found = list[Path]()
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES and p.is_file())
            if not inside:
                raise ValueError(f"{path}: holds no {', '.join(SUFFIXES)} file; name the folder with the texts")
            found += inside
        elif path.is_file():
            found.append(path)
        elif path.exists():  # a pipe, say
            raise ValueError(f"{path}: is no regular file, and texts are read more than once; copy it into one")
        else:
            raise ValueError(f"{path}: no such file or folder; name texts, .jsonl or TinyStories' .json files")
    return found


def download(dataset: str) -> list[Path]:
    """The files of a dataset, from Hugging Face or from its cache. ValueError where neither is to be had."""
    if dataset not in _DATASETS:
        raise ValueError(f"--dataset {dataset} is unknown; known: {', '.join(_DATASETS)}")
    repository, names = _DATASETS[dataset]
    from huggingface_hub import hf_hub_download

    try:
        return [Path(hf_hub_download(repository, name, repo_type="dataset")) for name in names]
    except Exception as error:  # the library raises its own, those of its HTTP client and OSError
        why = str(error).strip().split("\n")[0]
        raise ValueError(
            f"--dataset {dataset}: cannot download {repository} from huggingface.co ({type(error).__name__}:"
            f" {why:.200}); check the network, or give files that you have: gristmill train FILE..."
        ) from None


def cut(files: Sequence[Path], separator: str, piece_bytes: int = PIECE_BYTES) -> list[list[Span]]:
    """The files as groups of about piece_bytes, cut between documents, or between lines where a document is longer."""
    groups: list[list[Span]] = [[]]
    size = 0
    for path in files:
        for span in _spans(path, separator, piece_bytes):
            if size and size + span.end - span.begin > piece_bytes:
                groups.append([])
                size = 0
            groups[-1].append(span)
            size += span.end - span.begin
    return [group for group in groups if group]


def documents(span: Span, separator: str) -> Iterator[str]:
    """The texts in a span without white space around them, empty ones left out."""
    path = Path(span.path)
    with path.open("rb") as file:
        file.seek(span.begin)
        data = file.read(span.end - span.begin)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        at = span.begin + error.start
        raise ValueError(
            f"{path}: byte {at} is {data[error.start]:#04x}, not UTF-8; convert the file to UTF-8"
        ) from None
    found: Iterator[str]
    if path.suffix == ".jsonl":
        found = (
            _field(line, path, "text", f"line starting {line[:40]!r}") for line in text.split("\n") if line.strip()
        )
    elif path.suffix == ".json":
        found = _stories(text, path)
    else:
        found = iter(text.split(separator)) if separator else iter((text,))
    return (document for document in map(str.strip, found) if document)


def _spans(path: Path, separator: str, piece_bytes: int) -> Iterator[Span]:
    size = path.stat().st_size
    if path.suffix == ".json" or size <= piece_bytes:
        yield Span(str(path), 0, size)
        return
    mark = b"\n" if path.suffix == ".jsonl" or not separator else separator.encode()
    begin = 0
    with path.open("rb") as file:
        while begin < size:
            end = min(size, begin + piece_bytes)
            if end < size:
                file.seek(begin)
                data = file.read(end - begin)
                at = data.rfind(mark)
                if at <= 0:
                    at, mark_bytes = data.rfind(b"\n"), 1
                else:
                    mark_bytes = len(mark)
                end = begin + at + mark_bytes if at > 0 else _next_line(file, end, size)
            yield Span(str(path), begin, end)
            begin = end


def _next_line(file: Any, at: int, size: int) -> int:
    file.seek(at)
    file.readline()
    return min(size, int(file.tell()))


def _stories(text: str, path: Path) -> Iterator[str]:
    try:
        stories = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is not JSON ({error}); JSON lines must be named .jsonl") from None
    if not isinstance(stories, list):
        raise ValueError(f"{path}: is a JSON {type(stories).__name__}, must be a list of objects with a `story`")
    for i, story in enumerate(stories):
        yield _text_of(story, path, "story", f"entry {i}")


def _field(line: str, path: Path, name: str, where: str) -> str:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {where}: is not JSON ({error}); each line must be an object with `text`") from None
    return _text_of(value, path, name, where)


def _text_of(value: Any, path: Path, name: str, where: str) -> str:
    text = value.get(name) if isinstance(value, dict) else None
    if not isinstance(text, str):
        raise ValueError(f"{path}: {where}: has no text in the field `{name}`; each document needs one")
    return text
