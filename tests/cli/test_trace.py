"""`gristmill trace` as a person or a script calls it. What its numbers should be, other tests say."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import small_model
from click.testing import CliRunner, Result
from oracles.families import save

from gristmill import LLM, SamplingParams
from gristmill.cli.main import main
from gristmill.cli.trace_tables import Names
from gristmill.tracing.picture import _draw_norms, draw_timeline
from gristmill.tracing.timeline import AGAIN, ANSWER, WAITING, Share, Step, Timeline
from gristmill.tracing.timeline import PROMPT as PROMPT_SHARE
from gristmill.tracing.view import View

PROMPT = "a sea [of] $x_1$ über\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model.write(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def gpt_oss(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without a vocabulary."""
    return save("gpt-oss", tmp_path_factory.mktemp("gpt-oss")).path


def run(model: Path, *args: object, text: str | None = None, **env: str) -> Result:
    command = ["trace", "-m", str(model), "--threads", "1", *map(str, args)]
    return CliRunner().invoke(main, command, input=text, env=env)


def report(model: Path, *args: object, **env: str) -> dict[str, Any]:
    result = run(model, *args, "--json", **env)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_json_has_every_field(model: Path) -> None:
    found = report(model, "-p", PROMPT, "-n", 3, "--top", 4, "--kv-type", "f32")
    with LLM(model, threads=1, kv_type="f32") as llm:
        prompt = llm.encode(PROMPT)
        params = SamplingParams(temperature=0, max_tokens=4, logprobs=4)
        (completion,) = llm.generate(PROMPT, params)[0].outputs
    answer = completion.token_ids
    assert set(found) == {
        *("tokens", "prompt_tokens", "next", "position", "embedded_norm", "layers", "attention", "lens")
    }
    assert [token["id"] for token in found["tokens"]] == [*prompt, *answer[:3]]
    assert [token["position"] for token in found["tokens"]] == list(range(len(prompt) + 3))
    assert found["tokens"][2]["text"] == "a"
    assert (found["prompt_tokens"], found["position"]) == (len(prompt), len(prompt) + 2)
    assert found["next"]["id"] == answer[3]
    assert [set(layer) for layer in found["layers"]] == [{"layer", "norm", "attention_norm", "ffn_norm", "experts"}] * 2
    assert [(row["layer"], row["head"], row["window"], row["sink"]) for row in found["attention"]] == [
        (0, "mean", 0, None),
        (1, "mean", 0, None),
    ]
    for row in found["attention"]:
        assert len(row["weights"]) == len(found["tokens"])
        assert sum(row["weights"]) == pytest.approx(1, abs=1e-5)
    assert [row["layer"] for row in found["lens"]] == [None, 0, 1]
    assert completion.logprobs is not None
    best = {i: np.exp(each.logprob) for i, each in completion.logprobs[3].items()}
    assert {top["id"]: pytest.approx(top["probability"]) for top in found["lens"][-1]["top"]} == best
    following = found["lens"][-1]["next"]
    assert (following["id"], following["rank"]) == (answer[3], 1)


def test_tables_say_what_the_json_says(model: Path) -> None:
    found, printed = report(model, "-p", PROMPT, "--position", 2), run(model, "-p", PROMPT, "--position", 2)
    assert printed.exit_code == 0
    lines = printed.stdout.split("\n")
    for title in ("Tokens", "Layers: token 2 a", "Attention: token 2 a, layer by layer", "Logit lens: token 2 a"):
        assert any(line.startswith(title) for line in lines)
    tokens = [line.split() for line in lines[3 : 3 + len(found["tokens"])]]
    assert [row[-2] for row in tokens] == [str(token["id"]) for token in found["tokens"]]
    assert "".join(row[-1] for row in tokens[1:]) == "␣a␣sea␣[of]␣$x_1$␣\\xc3\\xbcber\\n"
    assert [row[0] for row in tokens].index(">") == 2
    layers = lines[next(i for i, line in enumerate(lines) if line.startswith("Layers")) + 2 :]
    assert layers[0].split() == ["embedding", f"{found['embedded_norm']:.4g}"]
    row = found["layers"][1]
    assert layers[2].split() == ["1", *(f"{row[name]:.4g}" for name in ("norm", "attention_norm", "ffn_norm"))]
    attention = lines[next(i for i, line in enumerate(lines) if line.startswith("Attention")) + 2].split()
    weights = np.array(found["attention"][0]["weights"])
    best = int(weights.argmax())
    assert attention[:2] == ["0", str(best)]
    assert float(attention[3].rstrip("%")) == pytest.approx(100 * weights[best], abs=0.6)


def test_tokens_are_shown_as_they_are(model: Path) -> None:
    """Even what a table might take for its own."""
    printed = run(model, "-p", "\\\\[b]\\").stdout
    lines = printed.split("\n")
    assert [line.split()[-1] for line in lines[5:11]] == ["\\", "\\", "[", "b", "]", "\\"]
    assert any(line.startswith("Layers: token 7 \\  length") for line in lines)


def test_tokens_that_share_a_character_are_one_text(model: Path) -> None:
    with LLM(model, threads=1) as llm:
        ids = llm.encode("a é😀")[2:]
        names = Names(llm.tokenizer)
    assert (names.text(*ids), names(*ids)) == ("a é😀", "a␣é😀")
    assert (names.text(ids[2]), names(ids[2])) == ("\ufffd", "\\xc3")
    assert (names.text(*ids, 10**6), names(ids[0], 10**6)) == (None, f"{ids[0]} {10**6}")


def test_one_layer_is_shown_head_by_head(model: Path) -> None:
    found = report(model, "-p", PROMPT, "--layer", 1)["attention"]
    assert [(row["layer"], row["head"]) for row in found] == [(1, "mean"), *((1, head) for head in range(4))]
    mean = np.mean([row["weights"] for row in found[1:]], axis=0)
    np.testing.assert_allclose(found[0]["weights"], mean, atol=1e-6)
    assert report(model, "-p", PROMPT, "--layer", 1, "--head", 2)["attention"] == [found[3]]
    assert report(model, "-p", PROMPT, "--layer", 1, "--head", "mean")["attention"] == [found[0]]
    assert report(model, "-p", PROMPT, "--head", 2)["attention"][1] == found[3]
    lines = run(model, "-p", PROMPT, "--layer", 1).stdout.split("\n")
    start = next(i for i, line in enumerate(lines) if ", layer 1, head by head" in line)
    assert [line.split()[0] for line in lines[start + 1 : start + 7]] == ["head", "mean", "0", "1", "2", "3"]


def test_a_model_without_vocabulary_shows_ids(gpt_oss: Path) -> None:
    """And experts, sinks and windows."""
    ids = ",".join(map(str, range(10, 40)))
    found = report(gpt_oss, "--prompt-ids", ids)
    assert found["tokens"][1] == {"position": 1, "id": 11, "text": None}
    for layer in found["layers"]:
        assert len(layer["experts"]) == 4
        assert sum(expert["weight"] for expert in layer["experts"]) == pytest.approx(1)
    assert [row["window"] for row in found["attention"]] == [19, 0, 19, 0]
    for row in found["attention"]:
        assert sum(row["weights"]) + row["sink"] == pytest.approx(1, abs=1e-3)
    printed = run(gpt_oss, "--prompt-ids", ids).stdout
    assert "experts" in printed
    assert "sink" in printed
    assert "token 29 39" in printed
    refused = run(gpt_oss, "-p", "text")
    assert refused.exit_code == 1
    assert "--prompt-ids" in refused.stderr


@pytest.mark.parametrize(
    ("args", "code", "problem"),
    [
        (("--position", 99), 1, "position 99 is outside the 4 tokens: give 0 to 3, or -1 (the last) to -4"),
        (("--layer", 2), 1, "layer 2 is not one of the model's 2: give 0 to 1, or all"),
        (("--layer", "two"), 2, "'two' is neither a number nor 'all'"),
        (("--head", 4), 1, "head 4 is not one of the model's 4: give 0 to 3, or mean"),
        (("-n", 125), 1, "4 tokens of prompt and 125 to generate are more than the 128 that can be traced"),
        (("--prompt-ids", "1"), 2, "give --prompt or --prompt-ids, not both"),
        (("-p", "more"), 2, "several go with --timeline"),
        (("--timeline", "-n", 0), 2, "at least one token to generate"),
        (("--timeline", "--blocks", 1), 1, "need 2 cache blocks of 16 positions, and there are 1"),
        (("--timeline", "--layer", 1), 2, "--layer is not for a --timeline"),
        (("--step-tokens", 8), 2, "--step-tokens is for a --timeline"),
        (("--timeline", "--blocks", 2**40), 1, "--blocks 1099511627776 take"),
        (("-o", "picture.gif"), 2, "a picture ends in one of .png, .svg, .pdf"),
        (("-o", "nowhere/a.png"), 2, "there is no folder nowhere"),
    ],
)
def test_mistakes_are_named(model: Path, args: tuple[object, ...], code: int, problem: str) -> None:
    refused = run(model, "-p", "ab", *args)
    assert refused.exit_code == code
    assert problem in refused.stderr
    assert not refused.stdout


def test_ids_that_are_none(model: Path) -> None:
    assert "token id 259 is outside" in run(model, "--prompt-ids", "1,259").stderr
    assert "must be numbers with commas between, not '1;2'" in run(model, "--prompt-ids", "1;2").stderr


def test_prompts_from_stdin_and_environment(model: Path) -> None:
    whole = [token["id"] for token in report(model, "-p", "one two")["tokens"]]
    piped = run(model, "--json", text="one two")
    assert [token["id"] for token in json.loads(piped.stdout)["tokens"]] == whole
    assert [token["id"] for token in report(model, GRISTMILL_PROMPT="one two")["tokens"]] == whole
    two = report(model, "--timeline", "-n", 1, GRISTMILL_PROMPT="one two\nthree")
    assert [len(request["prompt_ids"]) for request in two["requests"]] == [len(whole), 7]


SEVERAL = ("--timeline", "-p", "the same beginning, one", "-p", "the same beginning, two", "-p", "b", "-n", 20)


def test_timeline(model: Path) -> None:
    found = report(model, *SEVERAL, "--blocks", 5, "--step-tokens", 16)
    assert set(found) == {"requests", "blocks", "steps"}
    with LLM(model, threads=1) as llm:
        outputs = llm.generate(list(SEVERAL[2:7:2]), SamplingParams(temperature=0, max_tokens=20))  # type: ignore[arg-type]
    assert [r["output_ids"] for r in found["requests"]] == [output.outputs[0].token_ids for output in outputs]
    assert found["blocks"] == 5
    assert all(step["tokens"] <= 16 and step["blocks_used"] <= 5 for step in found["steps"])
    assert any(share["preempted"] for step in found["steps"] for share in step["requests"])
    printed = run(model, *SEVERAL, "--blocks", 5, "--step-tokens", 16).stdout
    for word in ("preempted", "prompt 0-15", "cached 0-15, prompt 16-", "waits", "done", "/5", " each"):
        assert word in printed, word


def test_tables_cut_nothing(model: Path) -> None:
    """Neither of many requests nor of few columns."""
    prompts = [part for i in range(40) for part in ("-p", f"number {i}")]
    printed = run(model, "--timeline", *prompts, "-n", 2).stdout
    steps = printed.partition("are one row")[2].split()
    assert (steps.count("request"), steps.count("done")) == (40, 40)
    narrow = run(model, "-p", "some sea", COLUMNS="20", TERM="xterm").stdout
    assert "feed-forward" in narrow.split()
    assert "…" not in printed + narrow


def test_pictures(model: Path, gpt_oss: Path, tmp_path: Path) -> None:
    """Of both kinds, with text that a font or TeX would stumble over; a warning would be an error."""
    pytest.importorskip("matplotlib", reason="the pictures need matplotlib")
    ids = ",".join(map(str, range(100)))
    for name, (path, args) in {
        "layers.png": (model, ("-p", PROMPT + "中🙂", "-n", 2)),
        "heads.svg": (model, ("-p", PROMPT, "--layer", 0)),
        "experts.png": (gpt_oss, ("--prompt-ids", ids)),
        "one.png": (model, ("--prompt-ids", "1")),
        "steps.png": (model, (*SEVERAL, "--blocks", 5)),
    }.items():
        result = run(path, *args, "-o", tmp_path / name)
        assert result.exit_code == 0, result.output
        assert result.stderr.endswith(f"wrote {tmp_path / name}\n")
        picture = (tmp_path / name).read_bytes()
        assert picture.startswith(b"\x89PNG" if name.endswith("png") else b"<?xml")
        assert len(picture) > 20_000


@pytest.mark.parametrize("args", [("-p", PROMPT), SEVERAL])
def test_a_picture_for_which_there_is_no_room(model: Path, args: tuple[object, ...], tmp_path: Path) -> None:
    """The system's limit on files stands for a disk that becomes full."""
    pytest.importorskip("matplotlib", reason="the pictures need matplotlib")
    code = (
        "import resource, sys, matplotlib.font_manager; from gristmill.cli.main import main;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000)); main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", code, "trace", "-m", str(model), "--threads", "1", *map(str, args)]
    for name in ("a.png", "a.svg"):
        done = subprocess.run([*command, "-o", str(tmp_path / name)], capture_output=True, text=True)
        assert done.returncode == 1
        assert done.stderr.endswith(f"{tmp_path / name}: cannot be written: File too large; nothing of it was kept\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("most", [20, 45, 900, 20_000, 3e6])
def test_labels_of_norms_stand_apart(most: float) -> None:
    figure_of = pytest.importorskip("matplotlib.figure", reason="the pictures need matplotlib").Figure
    figure = figure_of(figsize=(15 / 3.4, 3), layout="constrained")
    axes, norms = figure.subplots(), np.array([[most, 2, 3], [most, 5, 30]])
    _draw_norms(axes, cast(View, SimpleNamespace(config=SimpleNamespace(n_layers=2), embedded_norm=1.3, norms=norms)))
    figure.canvas.draw()
    labels = [label for label in axes.get_xticklabels(which="both") if label.get_text() and label.get_visible()]
    boxes = sorted(label.get_window_extent().intervalx.tolist() for label in labels)
    inside = [(left, right) for left, right in boxes if axes.bbox.x0 <= right and left <= axes.bbox.x1]
    assert len(inside) >= 3
    assert all(right < left for (_, right), (left, _) in pairwise(inside))


def test_a_legend_of_all_kinds_stands_beside_its_heading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text_of = pytest.importorskip("matplotlib.text", reason="the pictures need matplotlib").Text
    figures = list[Any]()
    monkeypatch.setattr("gristmill.tracing.picture._save", lambda figure, path: figures.append(figure))
    kinds = (PROMPT_SHARE, ANSWER, AGAIN, WAITING)
    shares = tuple(Share(request, kind, preempted=True) for request, kind in enumerate(kinds))
    draw_timeline(tmp_path / "a.png", Timeline(((0,),) * 4, ((0,),) * 4, 9, (Step(shares, 4, 1.0),)))
    (figure,) = figures
    figure.draw_without_rendering()
    legend = figure.axes[0].get_legend()
    assert len(legend.get_texts()) == 6
    (heading,) = figure.findobj(lambda found: isinstance(found, text_of) and "each request" in found.get_text())
    assert heading.get_window_extent().x1 < legend.get_window_extent().x0


def test_pictures_take_no_text_for_mathematics(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vocabularies have tokens such as $$, which none are."""
    pytest.importorskip("matplotlib", reason="the pictures need matplotlib")
    monkeypatch.setattr(Names, "__call__", lambda self, token_id: "$_$")
    assert run(model, "-p", "ab", "-o", tmp_path / "a.png").exit_code == 0
