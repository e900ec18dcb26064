"""Which model a server has. It asks once, before anything is measured."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

from gristmill.bench.serving.http import Address, Pool, encode_request

_WITHIN_S = 15.0


async def only_model(address: Address, path: str, headers: Mapping[str, str]) -> str:
    """The name of the one model that the server lists. OSError where none answers, ValueError for any other answer."""
    pool, body = Pool(address), bytearray()
    where = f"{address.name}{path}"
    request = encode_request(address, "GET", path, headers)
    try:
        async with asyncio.timeout(_WITHIN_S):
            status = await pool.ask(request, lambda _, data: body.extend(data))
    except TimeoutError:
        raise OSError(f"{where}: no answer within {_WITHIN_S:g} s") from None
    except OSError as error:
        raise OSError(f"{where}: {error.strerror or error}; is the server running?") from None
    finally:
        pool.close()
    if status != 200:
        raise ValueError(f"{where}: HTTP {status}: {body.decode(errors='replace').strip()[:200]}")
    try:
        names = [model["id"] for model in json.loads(body)["data"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{where}: answers {bytes(body[:80])!r}, which is no list of models") from None
    if len(names) != 1:
        raise ValueError(f"{where}: has {', '.join(map(str, names[:20])) or 'no models'}: choose one with --model NAME")
    return str(names[0])
