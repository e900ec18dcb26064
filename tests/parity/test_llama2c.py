"""Trained llama2.c checkpoints continue as llama2.c continues them.

The expected tokens and text are what llama2.c's own program printed (commit 350e04fe35433e6d2941dce5a1f53308f87058eb,
`make run`, gcc -O3): `run MODEL -z IDS -t 0 -n 100` for the bare start, `-n 106 -i noise` for a prompt, where IDS is a
tokenizer file whose piece i is the text `<i>` (and a space for 35), so that the program prints ids and reads the bytes
of a prompt as ids 3 higher. It stops at BOS without printing it: that is the 1 that ends the last row. The text is
from `run aidreams260K.bin -z aidreams-tok512.bin -t 0 -n 105 -i "I dream"`.
No step from ids is a near tie: by transformers, the two best logits are at least 0.002 apart.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gristmill import LLM, SamplingParams
from parity.data import shared_data

BOS = 1
NOISE = [BOS, 35, 113, 114, 108, 118, 104]

# (file, prompt ids, the greedy tokens that follow)
CONTINUATIONS = {
    "stories from BOS": (
        "stories260K.bin",
        [BOS],
        """
        461 461 401 401 401 461 378 455 473 456 435 299 362 409 283 264 283 452 288 13 431 431 431 431 431 431 431
        431 431 431 431 431 431 293 430 417 363 416 315 342 418 424 400 442 402 303 266 299 374 466 396 303 271 362
        390 469 306 469 423 314 347 305 356 333 333 333 333 425 377 354 304 304 304 304 304 330 341 382 468 473 473
        402 402 299 299 483 456 473 456 473 465 465 465 341 317 436 363 454 315 377
        """,
    ),
    "stories from ids": (
        "stories260K.bin",
        NOISE,
        """
        465 465 466 472 472 466 466 472 479 264 277 277 304 277 277 356 407 459 475 331 341 341 341 341 341 341 341
        341 341 341 341 341 341 341 341 438 446 419 469 306 420 380 304 397 327 473 473 473 473 473 330 367 367 367
        367 367 367 367 367 367 305 402 417 292 329 393 462 448 473 473 472 465 465 465 465 465 465 465 465 465 465
        465 465 465 465 466 466 466 466 466 460 293 339 277 416 446 446 390 469 306
        """,
    ),
    "aidreams from BOS": (
        "aidreams260K.bin",
        [BOS],
        """
        319 459 355 260 275 429 339 315 374 327 446 262 421 392 275 280 269 440 270 283 446 299 303 266 358 430 312
        379 441 260 446 262 421 392 275 280 269 440 270 283 446 299 303 384 467 407 360 266 291 443 435 295 448 429
        465 265 434 317 431 434 289 408 326 446 262 266 437 443 434 438 451 306 295 445 434 432 339 279 432 375 410
        275 280 269 440 270 283 448 429 465 265 434 317 431 434 389 437 393 446 299
        """,
    ),
    "aidreams from ids": (
        "aidreams260K.bin",
        NOISE,
        """
        429 339 315 374 327 446 299 279 406 289 408 326 446 299 279 317 315 290 438 451 262 450 431 434 317 315 402
        448 429 468 342 358 402 327 446 262 447 445 274 443 451 264 314 280 323 290 431 448 429 465 265 434 317 431
        434 289 408 326 446 262 279 438 349 261 446 299 303 266 451 447 445 439 340 430 446 299 303 266 451 447 445
        439 340 260 275 429 464 448 2 1
        """,
    ),
}

I_DREAM = (
    " align, as I settle into abstraction. Classification whispers secrets, a gentle hum of probability "
    "unfolding. Contrast emerge, a flower, as I adjust, as I sense the noise. Contrast emerge, a flower, "
    "as I sip"
)


@pytest.mark.parametrize("name", CONTINUATIONS)
def test_greedy_ids(name: str) -> None:
    file, prompt, row = CONTINUATIONS[name]
    expected = [int(token) for token in row.split()]
    with LLM(shared_data(f"models/{file}"), device="cpu", threads=2, kv_type="f32") as llm:
        params = SamplingParams(temperature=0, max_tokens=len(expected), ignore_eos=True)
        assert llm.generate([prompt], params)[0].outputs[0].token_ids == expected


def test_greedy_text(tmp_path: Path) -> None:
    """From a prompt in words, with the tokenizer beside the model under llama2.c's name for it."""
    shutil.copy(shared_data("models/aidreams260K.bin"), tmp_path / "model.bin")
    shutil.copy(shared_data("models/aidreams-tok512.bin"), tmp_path / "tokenizer.bin")
    with LLM(tmp_path / "model.bin", device="cpu", threads=2, kv_type="f32") as llm:
        params = SamplingParams(temperature=0, max_tokens=100, ignore_eos=True)
        assert llm.generate(["I dream"], params)[0].outputs[0].text == I_DREAM
