"""The training loop: forward, backward, clip, step; now and then evaluate, save and tell. It knows no files of its own
and no screen: `checkpoint` writes, a `Report` tells.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from gristmill.formats.checkpoint import Checkpoint
from gristmill.tokenizer.files import load_path
from gristmill.train.checkpoint import BEST, LAST, link, load_optimizer, save
from gristmill.train.data import Ids, Shards, Windows, separator_id, validation
from gristmill.train.group import Group
from gristmill.train.model import Model
from gristmill.train.sample import sample_text
from gristmill.train.settings import Settings, State


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step did; loss in nats a token, of the whole batch; seconds of training so far."""

    step: int
    tokens: int
    loss: float
    lr: float
    grad_norm: float
    seconds: float
    tokens_per_s: float


class Report(Protocol):
    """Whom the loop tells what it does."""

    def stepped(self, report: StepReport) -> None: ...

    def evaluated(self, step: int, val_loss: float, is_best: bool) -> None: ...

    def sampled(self, step: int, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Job:
    """A run: its folder, what it is asked, its data, and the model that it begins with.

    state   how far it has come
    resume  the checkpoint that it goes on from, None where it begins
    best    the best one so far where its loss is to be measured again, as evaluations use other sequences than then
    """

    folder: Path
    settings: Settings
    shards: Shards
    tokenizer: Path
    start: Checkpoint
    state: State
    resume: Path | None = None
    best: Checkpoint | None = None


def train(job: Job, group: Group, report: Report | None, stop: Callable[[], bool] = lambda: False) -> State:
    """Train until all steps are done, patience is out, or stop() says so; leave a checkpoint. The final state.

    report  None in processes that do not lead

    Raises ValueError where the text is too short, or where the loss is no longer a number.
    """
    return _Training(job, group, report).run(stop)


class _Training:
    def __init__(self, job: Job, group: Group, report: Report | None) -> None:
        self.job, self.group, self.report, self.settings = job, group, report, job.settings
        self.model = Model(job.start, group.device)
        self.optimizer = adamw(self.model, self.settings)
        self.state = replace(job.state)
        if job.resume is not None:
            load_optimizer(job.resume, self.model, self.optimizer, self.state.step)
        s = self.settings
        self.windows = Windows(job.shards, s.ctx, s.seed)
        self.held_out = validation(job.shards, s.ctx, s.batch * s.eval_batches)
        self.micro_batch = micro_batch_of(s, group.size)
        self.forward: Any = torch.compile(self.model) if s.compile else self.model
        self.parallel: Any = DistributedDataParallel(self.forward) if group.size > 1 else None
        self.autocast = autocast_of(s.dtype, group.device)

    def run(self, stop: Callable[[], bool]) -> State:
        s, state = self.settings, self.state
        if self.job.best is not None:
            state.best, state.n_worse = self._validation_loss(Model(self.job.best, self.group.device)), 0
        waiting = list[tuple[Tensor, Tensor]]()  # losses and norms that nobody has looked at: looking waits for a GPU
        started = time.perf_counter()
        while state.step < s.steps:
            waiting.append(self.step())
            state.step += 1
            state.tokens += s.batch * s.ctx
            stopping = self._agree(stop())
            evaluating = s.evaluates_after(state.step)
            if stopping or evaluating or state.step % s.log_every == 0:
                self._tell(waiting, started)
                waiting, started = [], time.perf_counter()
            if evaluating:
                self.evaluate()
                stopping = stopping or 0 < s.patience <= state.n_worse
                started = time.perf_counter()
            elif stopping:
                self._save(is_best=False)
            if stopping:
                break
        return state

    def step(self) -> tuple[Tensor, Tensor]:
        """One update of the weights: (the batch's mean loss, the norm of its gradient before it was clipped)."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.lr_at(self.state.step)
        loss = torch.zeros((), device=self.group.device)
        for tokens, targets, is_last in self._micro_batches():
            with self._synchronized(is_last), self.autocast():
                part = (self.parallel or self.forward)(tokens, targets) / self._n_micro
                part.backward()
            loss += part.detach()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip or float("inf"))
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss, norm

    def evaluate(self) -> None:
        """The loss on what is held out; a checkpoint; a sample."""
        val_loss, state = self._validation_loss(self.forward), self.state
        is_best = state.best is None or val_loss < state.best
        state.best, state.n_worse = (val_loss, 0) if is_best else (state.best, state.n_worse + 1)
        self._save(is_best)
        if self.report is not None:
            self.report.evaluated(state.step, val_loss, is_best)
            self._sample(self.report)

    @torch.no_grad()
    def _validation_loss(self, forward: Callable[[Tensor, Tensor], Tensor]) -> float:
        """ValueError where it is not finite: before the checkpoints become what cannot go on."""
        total = torch.zeros(2, dtype=torch.float64, device=self.group.device)  # sum and number of sequences' losses
        mine = self.held_out[self.group.rank :: self.group.size]
        for begin in range(0, len(mine), self.micro_batch):
            tokens, targets = self._on_device(mine[begin : begin + self.micro_batch])
            with self.autocast():
                loss = forward(tokens, targets)
            total += torch.stack([loss.double() * len(tokens), torch.tensor(float(len(tokens)), device=loss.device)])
        summed, n = self.group.mean(total).tolist()
        val_loss = float(summed / n)
        _check_finite(self.state.step, val_loss)
        return val_loss

    @property
    def _n_micro(self) -> int:
        return self.settings.batch // self.group.size // self.micro_batch

    def _micro_batches(self) -> Iterator[tuple[Tensor, Tensor, bool]]:
        """This process's part of the next step's sequences, and whether it is the last micro-batch."""
        mine = self.settings.batch // self.group.size
        begin = self.state.tokens // self.settings.ctx + self.group.rank * mine
        for i in range(self._n_micro):
            at = begin + i * self.micro_batch
            tokens, targets = self._on_device(self.windows.take(at, at + self.micro_batch))
            yield tokens, targets, i == self._n_micro - 1

    def _on_device(self, windows: Ids) -> tuple[Tensor, Tensor]:
        """Tokens and the tokens after them, [S, L] each."""
        both = torch.from_numpy(np.ascontiguousarray(windows))
        if self.group.device.type == "cuda":
            both = both.pin_memory().to(self.group.device, non_blocking=True)
        return both[:, :-1].contiguous(), both[:, 1:].contiguous()

    def _synchronized(self, is_last: bool) -> AbstractContextManager[Any]:
        """Gradients of processes are averaged once a step, with the last micro-batch."""
        return nullcontext() if self.parallel is None or is_last else self.parallel.no_sync()

    def _agree(self, stop: bool) -> bool:
        return bool(self.group.mean(torch.tensor(float(stop), device=self.group.device)) > 0)

    def _tell(self, waiting: list[tuple[Tensor, Tensor]], started: float) -> None:
        """Report the steps since `started`; ValueError where a loss is not finite."""
        s, state, n = self.settings, self.state, len(waiting)
        losses = self.group.mean(torch.stack([loss for loss, _ in waiting])).tolist()
        norms = torch.stack([norm for _, norm in waiting]).tolist()
        seconds = (time.perf_counter() - started) / n
        for i, (loss, norm) in enumerate(zip(losses, norms, strict=True)):
            step = state.step - n + 1 + i
            state.seconds += seconds
            _check_finite(step, loss)
            if self.report is not None:
                in_step = s.batch * s.ctx
                tokens, speed = state.tokens - (n - 1 - i) * in_step, in_step / seconds
                self.report.stepped(StepReport(step, tokens, loss, s.lr_at(step - 1), norm, state.seconds, speed))

    def _save(self, is_best: bool) -> None:
        if self.group.leads:
            last = self.job.folder / LAST
            save(last, self.model, self.optimizer, self.state, self.settings, self.job.tokenizer)
            if is_best:
                link(last, self.job.folder / BEST)
        self.group.wait()

    def _sample(self, report: Report) -> None:
        s = self.settings
        if s.sample_tokens:
            tokenizer = load_path(self.job.tokenizer)
            first = separator_id(tokenizer, self.job.tokenizer)
            text = sample_text(self.model, tokenizer, first, s.sample_prompt, s.sample_tokens, s.seed)
            report.sampled(self.state.step, text)


def _check_finite(step: int, loss: float) -> None:
    if not np.isfinite(loss):
        raise ValueError(f"step {step}: the loss is {loss}; begin again with a lower --lr or a longer --warmup")


def adamw(model: Model, s: Settings) -> torch.optim.AdamW:
    """Matrices decay, vectors do not (Loshchilov and Hutter, arXiv:1711.05101)."""
    parameters = list(model.by_name.values())
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": s.weight_decay},
        {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=s.lr, betas=(s.beta1, s.beta2), fused=True)


def micro_batch_of(s: Settings, n_processes: int) -> int:
    """Sequences that a process computes at once. ValueError where the batch cannot be divided so."""
    if s.batch % n_processes:
        raise ValueError(f"--batch {s.batch} cannot be shared by {n_processes} processes; make it a multiple of that")
    mine = s.batch // n_processes
    if s.micro_batch and mine % s.micro_batch:
        raise ValueError(
            f"--micro-batch {s.micro_batch} does not divide the {mine} sequences of a step that each process computes"
        )
    return s.micro_batch or mine


def autocast_of(dtype: str, device: torch.device) -> Callable[[], AbstractContextManager[Any]]:
    """Matrix products in bfloat16 where that is asked for; auto: on a GPU that has them."""
    if dtype not in ("auto", "float32", "bfloat16"):
        raise ValueError(f"--dtype must be auto, float32 or bfloat16, not {dtype!r}")
    if dtype == "auto":
        dtype = "bfloat16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"
    if dtype == "float32":
        return nullcontext
    return lambda: torch.autocast(device.type, torch.bfloat16)
