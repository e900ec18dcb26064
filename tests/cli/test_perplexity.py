"""`gristmill perplexity`: the figures are those of the logits, and files of log-probabilities are hostile."""

from __future__ import annotations

import json
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import small_model
from click.testing import CliRunner, Result
from numpy.typing import NDArray

from gristmill import LLM
from gristmill.cli.main import main
from gristmill.logprob_file import LogprobFile, save
from gristmill.perplexity import Estimate, cut, diverge, exponential, mean, predict, score

TEXT = "A fox saw a crow with a piece of cheese. 'How well you sing,' it said - and so the crow sang. " * 3
BOS = 1
N_TOKENS = len(TEXT) + 2  # BOS, and a space before the text


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model.write(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another model of the same vocabulary."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_model, "LAYERS", 1)
        return small_model.write(tmp_path_factory.mktemp("other"))


@pytest.fixture(scope="module")
def base(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Log-probabilities of `model`, windows of 32, kv type f32."""
    path = tmp_path_factory.mktemp("base") / "text.logprobs"
    result = run(model, "--ctx", 32, "--save-base", path)
    assert result.exit_code == 0, result.output
    assert "MiB for 8 windows" in result.stderr
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    return path


def run(model: Path | None, *args: object, text: str | bytes = TEXT, **env: str) -> Result:
    command = ["perplexity", "--kv-type", "f32", *([] if model is None else ["-m", str(model)]), *map(str, args)]
    return CliRunner().invoke(main, command, input=text, env={"GRISTMILL_THREADS": "1", **env})


def report(model: Path, *args: object, **env: str) -> dict[str, Any]:
    result = run(model, *args, "--json", **env)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def logprobs_of(model: Path, start: int, context: int, first: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Of the scored tokens of one window, from logits; and the tokens."""
    with LLM(model, kv_type="f32", threads=1) as llm:
        ids = np.array([BOS, *llm.encode(TEXT)[start + 1 : start + context]])
        logits = llm.logits(ids.tolist()).astype(np.float64)
    logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return logprobs[first - 1 : -1], ids[first:]


def nll_of(model: Path, starts: range, context: int, first: int) -> NDArray[np.float64]:
    windows = [logprobs_of(model, start, context, first) for start in starts]
    return np.concatenate([-logprobs[np.arange(len(ids)), ids] for logprobs, ids in windows])


@pytest.mark.parametrize(
    ("context", "stride", "first"), [(32, None, 17), (33, None, 17), (32, 8, 24), (20, 19, 1)]
)  # `first` as llama-perplexity counts: the first half and one more token are context
def test_figures_are_those_of_the_logits(model: Path, context: int, stride: int | None, first: int) -> None:
    found = report(model, "--ctx", context, *([] if stride is None else ["--stride", stride]))
    starts = range(0, N_TOKENS - context + 1, stride or context)
    nll = nll_of(model, starts, context, first)
    assert (found["windows"], found["tokens"], found["ctx"]) == (len(starts), len(nll), context)
    error = nll.std(ddof=1) / np.sqrt(len(nll))
    assert found["nll"] == pytest.approx(nll.mean(), abs=1e-7)
    assert found["nll_error"] == pytest.approx(error, abs=1e-7)
    assert found["perplexity"] == pytest.approx(np.exp(nll.mean()), rel=1e-7)
    assert found["perplexity_error"] == pytest.approx(np.exp(nll.mean()) * error, rel=1e-7)


def test_chunks_and_defaults(model: Path) -> None:
    assert report(model, "--ctx", 32, "--chunks", 2)["nll"] == pytest.approx(
        nll_of(model, range(0, 64, 32), 32, 17).mean(), abs=1e-7
    )
    everything = report(model)
    assert (everything["ctx"], everything["windows"]) == (128, 2)  # the model takes no more


def test_environment_variables_and_a_file(model: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text(TEXT)
    env = {"GRISTMILL_CTX": "32", "GRISTMILL_STRIDE": "8", "GRISTMILL_FILE": str(tmp_path / "text")}
    by_env, by_flags = report(model, **env), report(model, "--ctx", 32, "--stride", 8)
    assert by_env["nll"] == by_flags["nll"]


def test_a_table_for_people(model: Path, other: Path, base: Path) -> None:
    result = run(model, "--ctx", 32)
    found = report(model, "--ctx", 32)
    assert f"{found['perplexity']:.4f} ± {found['perplexity_error']:.4f}" in result.stdout
    assert "120 tokens scored in 8 windows of 32;" in result.stdout
    assert "windows of 32, 8 apart;" in run(model, "--ctx", 32, "--stride", 8).stdout
    assert "same likeliest token" in run(other, "--kl-base", base).stdout


def test_windows_begin_with_bos_where_there_is_one() -> None:
    ids = list(range(100, 120))
    with_bos, without = cut(ids, BOS, 8, 4), cut(ids, None, 8, 4)
    assert with_bos.tokens[:, 0].tolist() == [BOS] * 4
    assert without.tokens[:, 0].tolist() == [100, 104, 108, 112]
    np.testing.assert_array_equal(with_bos.tokens[:, 1:], without.tokens[:, 1:])


@pytest.mark.parametrize("name", ["qwen3-tied", "gpt-oss"])
def test_nll_is_the_loss_of_transformers(name: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    import torch
    from oracles.families import save as save_model

    oracle = save_model(name, tmp_path)
    windows = cut(oracle.text(200), None, 64)
    tokens = torch.tensor(windows.tokens.astype(np.int64))
    labels = tokens.clone()
    labels[:, : windows.first] = -100  # not counted
    with torch.inference_mode():
        loss = oracle.model(tokens, labels=labels, use_cache=False).loss.item()
    with LLM(oracle.path, kv_type="f32", threads=1) as llm:
        nll = mean(np.concatenate(list(score(llm, windows))))
    assert nll.value == pytest.approx(loss, abs=1e-5)
    assert exponential(nll).value == pytest.approx(np.exp(loss), rel=1e-5)


@pytest.mark.parametrize("kind", ["f16", "f32"])
def test_divergence_is_that_of_the_logits(model: Path, other: Path, tmp_path: Path, kind: str) -> None:
    saved = report(model, "--ctx", 32, "--save-base", tmp_path / "base", "--save-type", kind)
    assert saved["nll"] == pytest.approx(report(model, "--ctx", 32)["nll"], abs=1e-7)
    found = report(other, "--kl-base", tmp_path / "base")
    kl, same, difference = [], [], []
    for start in range(0, 8 * 32, 32):
        p, ids = logprobs_of(model, start, 32, 17)
        q, _ = logprobs_of(other, start, 32, 17)
        kl.append((np.exp(p) * (p - q)).sum(axis=1))
        same.append(p.argmax(axis=1) == q.argmax(axis=1))
        difference.append((p - q)[np.arange(len(ids)), ids])
    every, tolerance = np.concatenate(kl), {"f16": 2e-3, "f32": 1e-5}[kind]
    assert found["base"]["kl"] == pytest.approx(every.mean(), abs=tolerance)
    assert found["base"]["kl_error"] == pytest.approx(every.std(ddof=1) / np.sqrt(len(every)), abs=tolerance)
    assert found["base"]["kl_median"] == pytest.approx(np.median(every), abs=tolerance)
    assert found["base"]["kl_99"] == pytest.approx(np.quantile(every, 0.99), abs=tolerance)
    assert found["base"]["kl_max"] == pytest.approx(every.max(), abs=tolerance)
    assert found["base"]["same_top"] == np.concatenate(same).mean()
    assert found["base"]["perplexity"] == saved["perplexity"]
    assert found["base"]["perplexity_ratio"] == pytest.approx(np.exp(np.concatenate(difference).mean()), rel=1e-7)
    assert found["perplexity"] == pytest.approx(report(other, "--ctx", 32)["perplexity"], rel=1e-7)


def test_a_model_does_not_diverge_from_itself(model: Path, base: Path) -> None:
    found = report(model, "--kl-base", base)["base"]
    assert 0 <= found["kl"] <= found["kl_max"] < 1e-6
    assert found["same_top"] == 1
    assert (found["perplexity_ratio"], found["perplexity_ratio_error"]) == pytest.approx((1, 0), abs=1e-12)


class Sure:
    """A model that gives the token 2 no chance at all, or says what is no number."""

    def __init__(self, logit: float) -> None:
        self._logits = np.array([0, 0, logit], np.float32)

    def logits(self, ids: list[int], start: int) -> NDArray[np.float32]:
        return np.tile(self._logits, (len(ids) - start, 1))

    def score(self, ids: list[int], start: int) -> NDArray[np.float64]:
        return self.logits(ids, start)[:, 2].astype(np.float64)


def test_log_probabilities_beyond_the_file_s_range_are_its_least(tmp_path: Path) -> None:
    windows = cut([0, 1] * 4, None, 8)
    with ThreadPoolExecutor(1) as pool:
        found = list(predict(Sure(-1e9), windows, np.float16, pool))  # type: ignore[arg-type]
        assert found[0].logprobs[:, 2].tolist() == [np.finfo(np.float16).min] * windows.n_scored
        list(save(tmp_path / "base", 3, windows, np.float16, found))
        with LogprobFile(tmp_path / "base") as file:
            (same,) = diverge(Sure(-1e9), windows, file.distributions(), pool)  # type: ignore[arg-type]
    assert same.kl == pytest.approx(0, abs=1e-6)


def test_numbers_that_are_none_are_an_error() -> None:
    windows, broken = cut([0, 1] * 4, None, 8), Sure(np.nan)
    with ThreadPoolExecutor(1) as pool:
        base = list(predict(Sure(-1), windows, np.float32, pool))  # type: ignore[arg-type]
        for run_of in (
            lambda: list(score(broken, windows)),  # type: ignore[arg-type]
            lambda: list(predict(broken, windows, np.float32, pool)),  # type: ignore[arg-type]
            lambda: list(diverge(broken, windows, base, pool)),  # type: ignore[arg-type]
        ):
            with pytest.raises(ValueError, match="window 0: the model's log-probabilities are not finite"):
                run_of()


def test_estimates_at_their_ends() -> None:
    assert mean(np.array([3.0])) == Estimate(3.0, 0.0)
    assert exponential(Estimate(800.0, 0.1)).value == np.inf


def test_a_perplexity_beyond_all_numbers_is_json(tmp_path: Path) -> None:
    model = small_model.write(tmp_path)
    data = bytearray(model.read_bytes())
    embedding = np.frombuffer(data, "<f4", small_model.VOCAB * small_model.DIM, 28)  # also the head
    embedding *= 1e4
    model.write_bytes(data)
    result = run(model, "--ctx", 32, "--json")
    found = json.loads(result.stdout, parse_constant=pytest.fail)
    assert (found["perplexity"], found["perplexity_error"]) == ("inf", "inf")
    assert 700 < found["nll"] < np.inf


def test_a_disk_that_is_too_small_for_a_base(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gristmill.logprob_file.shutil.disk_usage", lambda path: SimpleNamespace(free=1000))
    result = run(model, "--ctx", 32, "--save-base", tmp_path / "base")
    assert result.exit_code == 1
    assert "and 1000 are free; use fewer --chunks" in result.stderr
    assert not list(tmp_path.iterdir())


def test_fewer_windows_than_the_base_has(other: Path, base: Path) -> None:
    assert report(other, "--kl-base", base, "--chunks", 3)["windows"] == 3


def test_threads_do_not_matter(model: Path, other: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are shared out in blocks, of any size."""
    with LLM(model, kv_type="f32") as llm, LLM(other, kv_type="f32") as second:
        windows = cut(llm.encode(TEXT), BOS, 32)
        runs = []
        for threads, block in ((1, 1 << 20), (3, 4 * 259)):
            monkeypatch.setattr("gristmill.perplexity._BLOCK", block)
            with ThreadPoolExecutor(threads) as pool:
                base = list(predict(llm, windows, np.float16, pool))
                runs.append(np.concatenate([each.kl for each in diverge(second, windows, base, pool)]))
    np.testing.assert_array_equal(runs[0], runs[1])


@pytest.mark.parametrize(
    ("args", "text", "message"),
    [
        ([], "short", "the text has 7 tokens and one window takes 128"),
        (["--ctx", 3], TEXT, "a window needs at least 4 tokens, not 3"),
        (["--ctx", 129], TEXT, "the context must be between 2 and the model's 128"),
        (["--ctx", 32, "--stride", 32], TEXT, "the stride must be between 1 and 31"),
        (["--chunks", 0], TEXT, "--chunks"),
        (["--save-base", "a", "--kl-base", "b"], TEXT, "not both"),
        (["--kl-base", "nowhere"], TEXT, "nowhere: file: is missing"),
        (["--save-base", "/nowhere/base"], TEXT, "/nowhere"),
        ([], b"ab\xff", "not UTF-8: byte 2 is 0xff"),
    ],
)
def test_a_mistake_gets_one_clear_line(model: Path, args: list[object], text: str | bytes, message: str) -> None:
    result = run(model, *args, text=text)
    assert result.exit_code in (1, 2)
    assert message in result.stderr
    assert isinstance(result.exception, SystemExit)


def test_what_is_there_already_is_not_overwritten(model: Path) -> None:
    before = model.read_bytes()
    result = run(model, "--save-base", model)
    assert "exists already" in result.stderr
    assert model.read_bytes() == before


def test_a_run_that_ends_early_leaves_no_file(model: Path, tmp_path: Path) -> None:
    with LLM(model, kv_type="f32") as llm, ThreadPoolExecutor(1) as pool:
        windows = cut(llm.encode(TEXT), BOS, 32)
        saved = save(tmp_path / "base", 259, windows, np.float16, predict(llm, windows, np.float16, pool))
        next(saved)
        assert len(list(tmp_path.iterdir())) == 1
        saved.close()
    assert list(tmp_path.iterdir()) == []


def test_a_base_is_for_one_text_vocabulary_and_cut(model: Path, base: Path) -> None:
    assert "tokens: window 0, token 4 is 105" in run(model, "--kl-base", base, text=TEXT.replace("fox", "dog")).stderr
    assert "was saved with --ctx 32, not 64" in run(model, "--kl-base", base, "--ctx", 64).stderr
    assert "was saved without --stride; leave it out" in run(model, "--kl-base", base, "--stride", 8).stderr
    assert "8 windows, fewer than --chunks 9" in run(model, "--kl-base", base, "--chunks", 9).stderr
    with LogprobFile(base) as file, pytest.raises(ValueError, match="vocabulary size: is 259 and the model's is 260"):
        file.check(260, file.windows)


HEADER = struct.Struct("<8s7Q")


def header(**changes: Any) -> bytes:
    """The fixture's header with some fields otherwise."""
    fields = {"magic": b"gristLP1", "item": 2, "vocab": 259, "windows": 8, "context": 32, "first": 17, "stride": 32}
    return HEADER.pack(*{**fields, "reserved": 0, **changes}.values())


TOKENS, WINDOW = 64, 64 + 8 * 32 * 4  # where these begin; 15 tokens of a window are scored
TOP, LOGPROBS = WINDOW + 15 * 8, WINDOW + 15 * 12


@pytest.mark.parametrize(
    ("at", "data", "message"),
    [
        (0, b"GGUF", "magic: is b'GGUFtLP1'"),
        (0, header(item=3), "bytes a number: are 3"),
        (0, header(vocab=0), "vocabulary size: is 0"),
        (0, header(vocab=2**63), "vocabulary size: is 9223372036854775808"),
        (0, header(vocab=260), "and its header asks for"),
        (0, header(windows=2**20), "and its header asks for"),
        (0, header(context=2**40), "context: is"),
        (0, header(first=0), "first: is 0 in windows of 32"),
        (0, header(first=32), "first: is 32"),
        (0, header(stride=0), "stride: is 0"),
        (0, header(stride=33), "stride: is 33 in windows of 32"),
        (0, header(stride=31), "windows: are not those of this run"),
        (0, header(reserved=1), "reserved: is 1"),
        (TOKENS, struct.pack("<i", 259), "tokens: an id is not in the vocabulary of 259"),
        (TOKENS, struct.pack("<i", -1), "tokens: an id is not"),
        (TOKENS + 4, struct.pack("<i", 200), "tokens: window 0, token 1 is 200"),
        (WINDOW, struct.pack("<d", float("nan")), "window 0: nll"),
        (WINDOW, struct.pack("<d", -1.0), "window 0: nll"),
        (TOP, struct.pack("<i", 259), "window 0: top"),
        (LOGPROBS, struct.pack("<e", float("nan")), "window 0: log-probabilities: do not make up"),
        (LOGPROBS, struct.pack("<e", float("-inf")), "window 0: log-probabilities"),
        (LOGPROBS + 7 * 259 * 2, struct.pack("<e", -0.01), "window 0: log-probabilities"),
        (LOGPROBS + 14 * 259 * 2, struct.pack("<e", -0.01), "window 0: log-probabilities"),
    ],
)
def test_a_hostile_base_is_named(model: Path, base: Path, tmp_path: Path, at: int, data: bytes, message: str) -> None:
    whole = base.read_bytes()
    assert whole[:64] == header()
    bad = tmp_path / "bad"
    bad.write_bytes(whole[:at] + data + whole[at + len(data) :])
    result = run(model, "--kl-base", bad)
    assert result.exit_code in (1, 2)
    assert str(bad) in result.stderr
    assert message in result.stderr
    assert isinstance(result.exception, SystemExit)


def test_no_length_and_no_byte_of_the_header_gets_through(base: Path, tmp_path: Path) -> None:
    whole, bad = base.read_bytes(), tmp_path / "bad"
    for n in (0, 1, 63, 64, 65, WINDOW - 1, len(whole) - 1):
        bad.write_bytes(whole[:n])
        with pytest.raises(ValueError, match=r"bad: (header|file): "):
            LogprobFile(bad)
    bad.write_bytes(whole + b"\0")
    with pytest.raises(ValueError, match="its header asks for"):
        LogprobFile(bad)
    for i in range(64):
        for value in (0, 1, 127, 255):
            bad.write_bytes(whole[:i] + bytes([value]) + whole[i + 1 :])
            problem = problem_with(bad)
            assert (str(bad) in problem) if problem else (whole[i] == value or 56 > i >= 48)  # a smaller stride may be


def problem_with(path: Path) -> str:
    try:
        with LogprobFile(path):
            return ""
    except ValueError as error:
        return str(error)


def test_a_file_that_shrinks_while_it_is_read(base: Path, tmp_path: Path) -> None:
    path = tmp_path / "base"
    path.write_bytes(base.read_bytes())
    with LogprobFile(path) as file:
        with path.open("r+b") as shorter:
            shorter.truncate(LOGPROBS + 100)
        with pytest.raises(ValueError, match="bytes early; it has changed meanwhile"):
            list(file.distributions())


def test_help_has_examples() -> None:
    shown = CliRunner().invoke(main, ["perplexity", "--help"]).stdout
    assert "Examples:" in shown
    assert "gristmill perplexity -m" in shown
