"""Read the bodies of requests; a client decides how large a body is and how slowly it comes, so both are limited."""

import asyncio
from typing import Final

from starlette.requests import ClientDisconnect, Request

from delaystore.web.errors import Refusal

_SILENCE: Final = 30.0
"""Seconds that a client may take for the next part of a body."""


async def body_of(request: Request, largest: int) -> bytes:
    """The body; raises Refusal where it has more than `largest` bytes, without reading on, or does not come."""
    chunks: list[bytes] = []
    size = 0
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_SILENCE) as limit:
            async for chunk in request.stream():
                limit.reschedule(loop.time() + _SILENCE)
                size += len(chunk)
                if size > largest:
                    raise Refusal(413, f"The request is larger than {largest:,} bytes.")
                chunks.append(chunk)
    except TimeoutError:
        raise Refusal(408, "The rest of the request did not come in time.", {"Connection": "close"}) from None
    except ClientDisconnect:  # nobody hears the answer; it is no fault of ours to be logged
        raise Refusal(400, "The request ended before its body did.") from None
    return b"".join(chunks)
