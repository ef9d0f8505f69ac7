"""Bodies of requests, which are as large as whoever sends them likes."""

from starlette.requests import Request

from delaystore.web.errors import Refusal


async def body_of(request: Request, largest: int) -> bytes:
    """The body; raises Refusal where it has more than `largest` bytes, without reading on."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > largest:
            raise Refusal(413, f"The request is larger than {largest:,} bytes.")
        chunks.append(chunk)
    return b"".join(chunks)
