"""The trainer against SentencePiece's own, piece for piece, and its vocabularies against SentencePiece reading them."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tokenizer_lines import random_lines
from tokenizer_oracles import THOROUGH

from gristmill._tokenizer import WordCounts
from gristmill.cli.main import main
from gristmill.formats.open import open_checkpoint
from gristmill.tokenizer.build import make_tokenizer
from gristmill.tokenizer.files import load_path, read_path
from gristmill.tokenizer.load import load_tokenizer
from gristmill.tokenizer.sentencepiece_file import read_sentencepiece
from gristmill.tokenizer.vocabulary import Vocabulary
from gristmill.tokenizer.write_sentencepiece import write_sentencepiece
from gristmill.train.sources import cut
from gristmill.train.tokenizer import N_FIXED, Settings, add_texts, count_tokens, count_words, train

sentencepiece = pytest.importorskip("sentencepiece")

RESERVED = "\u2585"  # SentencePiece leaves out lines with it


def theirs(lines: Iterable[str], folder: Path, settings: Settings) -> Vocabulary:
    """What SentencePiece's trainer makes of the same lines, without normalization."""
    model = io.BytesIO()
    text = folder / "theirs.txt"
    text.write_bytes("\n".join(lines).encode())
    sentencepiece.SentencePieceTrainer.train(
        input=str(text),
        model_writer=model,
        model_type="bpe",
        vocab_size=settings.vocab_size,
        character_coverage=settings.character_coverage,
        split_digits=settings.split_digits,
        max_sentencepiece_length=settings.max_characters,
        allow_whitespace_only_pieces=True,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        max_sentence_length=1 << 30,
        num_threads=1,
        minloglevel=2,
    )
    path = folder / "theirs.model"
    path.write_bytes(model.getvalue())
    return read_sentencepiece(path)


def counted(lines: Iterable[str]) -> WordCounts:
    words = WordCounts()
    add_texts(words, lines)
    return words


def as_texts(vocabulary: Vocabulary) -> list[str]:
    return [token if isinstance(token, str) else token.decode() for token in vocabulary.tokens]


def check_same(lines: list[str], folder: Path, settings: Settings) -> None:
    mine, other = train(counted(lines), settings), theirs(lines, folder, settings)
    assert as_texts(mine) == as_texts(other)
    assert list(mine.scores or ()) == list(other.scores or ())
    assert mine.types == other.types
    assert (mine.unk_id, mine.bos_id, mine.eos_id, mine.added) == (0, 1, 2, other.added)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("tinystories-sample", Settings(512)),
        ("tinystories-sample", Settings(4096)),
        ("tinystories-sample", Settings(2048, split_digits=False, max_characters=5)),
        ("childrens-books", Settings(512, character_coverage=0.995)),
        ("childrens-books", Settings(4096)),
        *([("childrens-books", Settings(30000))] if THOROUGH else []),
    ],
    ids=str,
)
def test_books_give_the_same_pieces(data: Path, tmp_path: Path, name: str, settings: Settings) -> None:
    text = (data / "text" / f"{name}.txt").read_bytes().decode()
    text = text if THOROUGH or name.startswith("tiny") else text[:700_000]
    check_same([line for line in text.split("\n") if line], tmp_path, settings)


@pytest.mark.parametrize("coverage", [1.0, 0.99])
@pytest.mark.parametrize("split_digits", [True, False])
def test_nasty_lines_give_the_same_pieces(tmp_path: Path, coverage: float, split_digits: bool) -> None:
    """All scripts mixed within words, digits of all of them, marks, tabs, runs of spaces and of letters."""
    lines = [line.replace("\0", "") for text in random_lines(5, 1500) for line in text.split("\n")]
    lines = [line for line in lines if line and RESERVED not in line]
    n_characters = len(set("".join(lines)))
    check_same(lines, tmp_path, Settings(N_FIXED + n_characters + 600, coverage, split_digits))


def few_letters(seed: int) -> list[str]:
    """Lines of few letters: frequencies tie, runs overlap, one piece comes about in several ways."""
    random_ = random.Random(seed)
    letters = random_.choice(["ab", "abc", "aab ", "abcd  ", "a.b-", "ba'\u00e9 ", "\u3042\u4e00\u30fc\u30a2"])
    return ["".join(random_.choices(letters, k=random_.randint(1, 30))) for _ in range(random_.randint(4, 60))]


@pytest.mark.parametrize("seed", [*range(60), 501, *(range(60, 1000) if THOROUGH else ())])  # 501: ties with the space
def test_few_letters_give_the_same_pieces(tmp_path: Path, seed: int) -> None:
    lines = few_letters(seed)
    most = most_ids(lines)
    for size in {N_FIXED + len(set("".join(lines))) + 2, (N_FIXED + most) // 2, most * 9 // 10}:
        if N_FIXED + len({*"".join(lines), " "}) <= size <= most:
            check_same(lines, tmp_path, Settings(size))


def most_ids(lines: list[str]) -> int:
    with pytest.raises(ValueError, match="too small for --vocab-size 65536") as error:
        train(counted(lines), Settings(65536))
    return int(str(error.value).split(" ids at most")[0].split()[-1])


def test_reserved_texts_are_in_no_piece(tmp_path: Path) -> None:
    lines = ["<s>the end</s> <unk> <0x0A>", "\u2581a\u2581b <s", "<<s>>  <s"] * 5
    check_same(lines, tmp_path, Settings(most_ids(lines)))


@pytest.fixture(scope="module")
def stories(data: Path) -> str:
    return (data / "text" / "tinystories-sample.txt").read_bytes().decode()


@pytest.fixture(scope="module")
def trained(stories: str) -> Vocabulary:
    return train(counted([stories]), Settings(1500, character_coverage=0.9995))


def test_sentencepiece_reads_it_and_encodes_alike(tmp_path: Path, trained: Vocabulary, stories: str) -> None:
    path = tmp_path / "tokenizer.model"
    write_sentencepiece(trained, path)
    other = sentencepiece.SentencePieceProcessor(str(path))
    mine = make_tokenizer(trained)
    texts = [*random_lines(6, 3000), *stories.split("\n")]
    for text, expected in zip(texts, other.encode(texts), strict=True):
        assert mine.encode(text, add_special=False) == expected, text
    assert other.decode(mine.encode("One day", add_special=False)) == "One day"
    assert (other.unk_id(), other.bos_id(), other.eos_id(), other.pad_id()) == (0, 1, 2, -1)
    assert [other.is_control(i) for i in range(4)] == [False, True, True, False]
    assert all(other.is_byte(i) for i in range(3, N_FIXED))


def test_counts_of_tokens(trained: Vocabulary, stories: str) -> None:
    tokenizer = make_tokenizer(trained)
    lines = ["  two  spaces ", " ", *stories.split("\n")]
    expected = sum(len(tokenizer.encode(line, add_special=False)) for line in lines)
    assert count_tokens(counted(lines), trained) == expected


def test_threads_change_nothing(tmp_path: Path, stories: str) -> None:
    path = tmp_path / "text.txt"
    path.write_text(stories)
    groups = cut([path], "", 20_000)
    assert len(groups) > 10
    reports: list[tuple[int, int]] = []
    counts = [
        count_words(groups, "", threads=threads, report=lambda done, total: reports.append((done, total)))
        for threads in (1, 3)
    ]
    assert sorted(counts[0].words()) == sorted(counts[1].words())
    assert [as_texts(train(words, Settings(900))) for words in counts] == [
        as_texts(train(counts[0], Settings(900)))
    ] * 2
    assert reports[-1] == (path.stat().st_size, path.stat().st_size)
    assert len(reports) == 2 * len(groups)


def run(*args: str) -> Any:
    return CliRunner().invoke(main, ["train-tokenizer", *args])


def test_command_writes_every_form(tmp_path: Path, stories: str) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    parts = stories.split("\n")
    third = len(parts) // 3
    (texts / "a.txt").write_text("\n".join(parts[:third]))
    lines = (json.dumps({"text": line}) for line in parts[third : 2 * third])
    (texts / "b.jsonl").write_text("\n".join(lines))
    (texts / "c.json").write_text(json.dumps([{"story": line} for line in parts[2 * third :]]))
    out = tmp_path / "out"
    done = run(str(texts), "-o", str(out), "--vocab-size", "700", "--json")
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert summary["vocab_size"] == 700
    assert summary["bytes_per_token"] == round(summary["text_bytes"] / summary["tokens"], 4)
    assert 2 < summary["bytes_per_token"] < 5
    names = ["tokenizer.bin", "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocabulary.gguf"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert sorted(summary["files"]) == [str(out / name) for name in names]

    expected = train(counted(line.strip() for line in parts), Settings(700))
    assert as_texts(read_path(out / "tokenizer.bin")) == as_texts(expected)
    tokenizer = make_tokenizer(expected)
    forms = [load_path(out / name) for name in names[:3]]
    forms.append(load_tokenizer(open_checkpoint(out / "vocabulary.gguf")))  # type: ignore[arg-type]
    for text in [*random_lines(8, 300), *parts[:50]]:
        assert [form.encode(text) for form in forms] == [tokenizer.encode(text)] * 4, text


def test_command_takes_a_line_s_end_in_a_separator(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("mill\n---\nstone\n---\nwater")
    args = (str(text), "-o", str(tmp_path / "out"), "--vocab-size", "272")
    assert run(*args, "--separator", r"\n---\n").exit_code == 0
    assert "-" not in as_texts(read_path(tmp_path / "out" / "tokenizer.bin"))


def test_command_without_json_says_the_numbers(tmp_path: Path, stories: str) -> None:
    (tmp_path / "a.txt").write_text(stories)
    done = run(str(tmp_path / "a.txt"), "-o", str(tmp_path / "out"), "--vocab-size", "512", "--threads", "2")
    assert done.exit_code == 0, done.output
    assert "512 ids from 278,548 bytes of text in " in done.stderr
    assert str(tmp_path / "out" / "tokenizer.bin") in done.stdout


@pytest.mark.parametrize(
    ("text", "args", "problem"),
    [
        (
            "abc abc abc",
            ["--vocab-size", "4096"],
            "too small for --vocab-size 4096: it gives 266 ids at most (3 pieces, 4",
        ),
        (
            "the quick brown fox",
            ["--vocab-size", "260"],
            "has 16 characters that are ids of their own: ask for at least 275",
        ),
        ("abc", ["--vocab-size", "200"], "--vocab-size is 200; must be over 259"),
        ("abc", ["--coverage", "1.5"], "--coverage is 1.5; must be over 0 and at most 1"),
        ("abc", ["--max-piece", "0"], "--max-piece is 0; must be 1 to 512"),
        ("\n\n", [], "there is no text in "),
        ("", [], "there is no text in "),
    ],
)
def test_mistakes_get_a_clear_line(tmp_path: Path, text: str, args: list[str], problem: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    done = run(str(tmp_path / "a.txt"), "-o", str(tmp_path / "out"), *args)
    assert done.exit_code == 1
    assert problem in done.output
    assert not (tmp_path / "out").exists()


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"abc \xff def")
    done = run(str(tmp_path / "a.txt"), "-o", str(tmp_path / "out"))
    assert done.exit_code == 1
    assert "a.txt: byte 4 is 0xff, not UTF-8" in done.output
    with pytest.raises(ValueError, match="byte 4 is 0xff"):
        count_words(cut([tmp_path / "a.txt"], "") * 9, "", threads=2)
    (tmp_path / "b.jsonl").write_text('{"text": "abc \\ud800"}')
    done = run(str(tmp_path / "b.jsonl"), "-o", str(tmp_path / "out"))
    assert "b.jsonl: has the lone surrogate U+D800" in done.output
    (tmp_path / "out").write_text("")
    assert "is a file" in run(str(tmp_path / "a.txt"), "-o", str(tmp_path / "out")).output


def test_scripts_do_not_mix(tmp_path: Path) -> None:
    """Pieces hold one script; Japanese's three are one, and marks take on the script before them."""
    lines = [
        "\u3042\u30a2\u4e00\u30fcabc",
        "e\u0301e\u0301 \u03b1\u0301\u03b1\u0301",
        "ab\u0431\u0431 \u0627\u0628\u064e",
    ] * 9
    check_same(lines, tmp_path, Settings(most_ids(lines)))
    pieces = as_texts(train(counted(lines), Settings(most_ids(lines))))[N_FIXED:]
    assert "\u2581\u3042\u30a2\u4e00\u30fc" in pieces
    assert not any("b" in piece and "\u0431" in piece for piece in pieces)
