"""The story generator: whole stories, correct in form, all different, and always the same for a seed."""

from __future__ import annotations

import ast
import importlib
import json
import random
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
COUNT = 20_000
QUOTED = re.compile(r'"[^"]*"')


def module(name: str) -> ModuleType:
    if str(SCRIPTS) not in sys.path:
        sys.path.append(str(SCRIPTS))
    return importlib.import_module(f"stories.{name}")


@cache
def stories() -> list[str]:
    return module("write").write_stories(None, COUNT, 7, 2)


@cache
def sample() -> list[str]:
    return stories()[:3000]


def search(pattern: str) -> list[str]:
    """What matches in the stories, with a little of what stands around it."""
    text = "\n".join(sample())
    return [text[max(0, m.start() - 40) : m.end() + 40] for m in re.finditer(pattern, text)]


def test_no_story_is_told_twice() -> None:
    told = stories()
    assert len(told) == len(set(told)) == COUNT


def test_a_seed_tells_the_same_stories_in_any_number_of_processes() -> None:
    write_stories = module("write").write_stories
    one = write_stories(None, 1000, 7, 1)
    assert one == write_stories(None, 1000, 7, 2) == stories()[:1000]
    assert not set(one) & set(write_stories(None, 500, 8, 1))


def test_every_paragraph_opens_with_a_capital_and_closes_a_sentence() -> None:
    paragraphs = [p for story in sample() for p in story.split("\n\n")]
    assert [p for p in paragraphs if not re.match(r'"?[A-Z]', p)] == []
    assert [p for p in paragraphs if not re.search(r'[.!?]"?$', p)] == []


def test_every_sentence_opens_with_a_capital() -> None:
    assert search(r'(?<!Mr)(?<!Mrs)[.!?] [a-z]|\." [a-z]|[.!?] "[a-z]') == []


def test_quotes_are_balanced_and_speech_is_punctuated() -> None:
    assert [p for story in sample() for p in story.split("\n\n") if p.count('"') % 2] == []
    assert search(r'\w" (?:said|asked|cried)\b|"" |" "[a-z]| ," | \."') == []


def test_nothing_of_the_pattern_language_is_left() -> None:
    assert search(r"[{}\[\]<>|_\x00-\x09\x0b-\x1f]|  |\.\.| [,.!?]") == []


def test_articles_suit_the_words_after_them() -> None:
    assert (
        search(
            r"\b[Aa] (?!one\b|once\b|use|uni|eu)[aeiou]|\b[Aa]n (?![aeiouAEIOU]|hour)|\b[Aa]n? (?:a|an|the|his|her)\b"
        )
        == []
    )


def test_pronouns_have_the_right_case() -> None:
    after = (
        r"\b(?:to|with|of|beside|between|from|behind|gave|told|hugged) (?:he|she|they|we)\b(?! \w+ed\b| \w+ \w+ed\b)"
    )
    assert search(after + r"(?= and\b|[,.!?])") == []
    assert search(r"\b(?:had|went|came) (?:him|me|us)\b|\bI (?:is|has)\b|\b(?:he|she) were\b|\bthey was\b") == []


def test_a_hero_is_he_or_she_but_not_both() -> None:
    """Told of one boy or girl alone with no other being named, a story never uses the other pronoun."""
    registry, names = module("registry"), module("kinds")
    quiet = next(p for p in module("write").all_plots() if p.name == "cannot_sleep")
    for seed in range(300):
        story = registry.start(quiet, random.Random(seed))
        hero, parent = story.beings["h"], story.beings["p"]
        quiet.tell(story)
        if hero.tells or parent.pronouns is hero.pronouns:
            assert hero.name in names.BOYS + names.GIRLS + names.BOY_PETS + names.GIRL_PETS or not hero.name
            continue
        if hero.name in names.BOYS:
            assert hero.pronouns.he == "he"
        if hero.name in names.GIRLS:
            assert hero.pronouns.he == "she"


def test_a_name_belongs_to_boys_or_to_girls() -> None:
    kinds = module("kinds")
    assert not set(kinds.BOYS) & set(kinds.GIRLS)
    assert not set(kinds.BOY_PETS) & set(kinds.GIRL_PETS)


def test_lengths_and_voices() -> None:
    lengths = [len(s.split()) for s in sample()]
    assert min(lengths) >= 60
    assert max(lengths) <= 280
    assert 110 < sum(lengths) / len(lengths) < 190
    told_by_hero = sum(bool(re.search(r"\bI (was|had|am|went|love)\b", QUOTED.sub("", s))) for s in sample())
    assert 0.04 < told_by_hero / len(sample()) < 0.1


def test_stories_begin_in_many_ways_and_use_a_childs_words() -> None:
    begins = Counter(" ".join(s.split()[:3]) for s in sample())
    assert len(begins) > 800
    assert begins.most_common(1)[0][1] / len(sample()) < 0.15
    words = Counter(re.findall(r"[a-z]+", " ".join(sample()).lower()))
    assert 1500 < len(words) < 3200


@cache
def patterns_told() -> set[str]:
    registry, told = module("registry"), set()
    for plot in module("write").all_plots():
        for seed in range(90):
            registry.tell_plot(plot, random.Random(seed), told)
    return told


def calls_of_plots() -> list[tuple[str, int, list[str]]]:
    """Each call in a plot that tells one of several patterns: the file, the line, the patterns."""
    found = []
    for path in sorted((SCRIPTS / "stories").glob("plots_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("one", "may"):
                texts = [n.value for a in node.args for n in ast.walk(a) if isinstance(n, ast.Constant)]
                found.append((path.name, node.lineno, [t for t in texts if isinstance(t, str) and " " in t]))
    return found


def test_every_plot_is_told_and_every_list_of_phrases_is_reached() -> None:
    told = patterns_told()
    unreached = [(name, line) for name, line, texts in calls_of_plots() if texts and not told.intersection(texts)]
    assert unreached == []
    banks = module("phrases").BANKS
    source = "".join(p.read_text(encoding="utf-8") for p in (SCRIPTS / "stories").glob("*.py"))
    beats = {name for name in banks if name.startswith("beat_")}
    spoken = {"beat_" + mood for mood in module("phrases").MANNERS} | {"beat_plain"}
    assert beats == spoken
    for name, phrases in banks.items():
        assert name in beats or told.intersection(phrases) or f"{{~{name}}}" in source, name


def test_most_patterns_are_reached() -> None:
    texts = [t for _, _, texts in calls_of_plots() for t in texts]
    assert len(texts) > 2000
    assert sum(t in patterns_told() for t in texts) / len(texts) > 0.97


def test_bad_patterns_are_refused() -> None:
    parse = module("text").parse
    for bad in ("[a|b", "a]", "<h: hello"):
        with pytest.raises(ValueError, match="pattern"):
            parse(bad)


@pytest.mark.parametrize("suffix", [".txt", ".jsonl"])
def test_the_command_writes_a_file(tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"stories{suffix}"
    command = [sys.executable, str(SCRIPTS / "stories"), str(out), "--count", "30", "--seed", "7", "--stats"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    text = out.read_text(encoding="utf-8")
    read = (
        [json.loads(x)["text"] for x in text.splitlines()]
        if suffix == ".jsonl"
        else text.split("\n<|endoftext|>\n")[:-1]
    )
    assert read == stories()[:30]
    assert "told twice" in done.stdout
