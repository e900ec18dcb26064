"""Routes without an answer from the model: models, tokens, embeddings. It knows no HTTP."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.serve.chat_protocol import DetokenizeRequest, TokenizeChatRequest, TokenizeRequest
from gristmill.serve.errors import refuse
from gristmill.serve.host import Host
from gristmill.serve.protocol import EmbeddingRequest
from gristmill.serve.service import Service
from gristmill.serve.shapes import text_of
from gristmill.serve.texts import Texts
from gristmill.serve.wire import dumps_long
from gristmill.types import RECOMMENDED, PromptRows, Request, SamplingParams, Wants


def model_list(host: Host) -> dict[str, Any]:
    return {"object": "list", "data": [model_card(host, name) for name in host.names]}


def model_card(host: Host, name: str) -> dict[str, Any]:
    host.check_model(name)
    card = {"id": name, "object": "model", "created": host.created, "owned_by": "gristmill"}
    usual = {name: getattr(host.defaults.usual, name) for name in RECOMMENDED}
    return {**card, "max_model_len": host.texts.max_context, "default_sampling_params": usual}


async def tokenize(host: Host, request: TokenizeRequest | TokenizeChatRequest) -> bytes:
    """The response's body, in JSON: it may hold millions of ids."""
    host.check_model(request.model)
    texts = host.texts

    def work() -> bytes:
        if isinstance(request, TokenizeChatRequest):
            ids = list(texts.prompt(request).ids)
        elif request.prompt is None:
            raise refuse("prompt", "is missing; give it, or messages", "missing_required_parameter")
        else:
            ids = texts.ids(request.prompt, add_special=request.add_special_tokens)
        found: dict[str, Any] = {"tokens": ids, "count": len(ids), "max_model_len": texts.max_context}
        if request.return_token_strs:
            found["token_strs"] = [text_of(texts.tokenizer, i) for i in ids]
        return dumps_long(found)

    return await texts.run(work)


async def detokenize(host: Host, request: DetokenizeRequest) -> dict[str, Any]:
    host.check_model(request.model)
    tokenizer = host.texts.tokenizer
    if (bad := max(request.tokens, default=0)) >= tokenizer.vocab_size:
        raise refuse("tokens", f"token id {bad} is outside the vocabulary of {tokenizer.vocab_size}")
    return {"prompt": await host.texts.run(lambda: tokenizer.decode(request.tokens))}


async def embeddings(host: Host, request: EmbeddingRequest) -> bytes:
    """The response's body, in JSON: it may hold millions of numbers."""
    host.check_model(request.model)
    texts, service = host.texts, host.service
    prompts = await texts.run(lambda: [_ids(texts, item) for item in request.inputs])
    vectors = list[NDArray[np.float32]]()
    while len(vectors) < len(prompts):
        if vectors:
            await service.room()  # without any the first slice is refused, as every request is
        n = max(1, service.n_free)
        vectors += await _vectors(service, prompts[len(vectors) : len(vectors) + n], request)
    n_tokens = sum(map(len, prompts))
    usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}

    def work() -> bytes:
        data = (
            {"object": "embedding", "index": i, "embedding": _encoded(vector, request)}
            for i, vector in enumerate(vectors)
        )
        return dumps_long({"object": "list", "data": data, "model": host.name, "usage": usage}, n_piece=1)

    return await texts.run(work)


def _ids(texts: Texts, given: str | list[int]) -> list[int]:
    """ApiError for more than the context holds, and for ids that are none."""
    ids = texts.encode(given, "input") if isinstance(given, str) else given
    texts.check_length(len(ids), 0, "input")
    if max(ids, default=0) >= texts.tokenizer.vocab_size:
        raise refuse("input", f"token id {max(ids)} is outside the vocabulary of {texts.tokenizer.vocab_size}")
    return ids


async def _vectors(
    service: Service, prompts: Sequence[Sequence[int]], request: EmbeddingRequest
) -> list[NDArray[np.float32]]:
    """Of texts that are computed together."""
    answering = await service.start([Request(tuple(ids), SamplingParams(), wants=Wants.HIDDEN) for ids in prompts])
    pools = [_Pool(request.pooling) for _ in prompts]
    try:
        n_open = len(pools)
        while n_open:
            for index, event in await answering.events():
                if isinstance(event, PromptRows):
                    pools[index].add(event.values)
                    n_open -= event.last
    finally:
        answering.close()
    return [pool.vector(request.normalize) for pool in pools]


class _Pool:
    """One vector for all of a text's rows."""

    def __init__(self, pooling: str) -> None:
        self._last = pooling == "last"
        self._sum: NDArray[np.float64] | None = None
        self._n = 0

    def add(self, rows: NDArray[np.float32]) -> None:
        part = rows[-1].astype(np.float64) if self._last else rows.sum(axis=0, dtype=np.float64)
        self._sum = part if self._sum is None or self._last else self._sum + part
        self._n = 1 if self._last else self._n + len(rows)

    def vector(self, normalize: bool) -> NDArray[np.float32]:
        assert self._sum is not None
        vector = self._sum / self._n
        length = float(np.linalg.norm(vector)) if normalize else 1.0
        return (vector / (length or 1.0)).astype(np.float32)


def _encoded(vector: NDArray[np.float32], request: EmbeddingRequest) -> list[float] | str:
    if request.encoding_format == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    numbers: list[float] = vector.tolist()
    return numbers
