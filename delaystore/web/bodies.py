"""Bodies of requests, which are as large as whoever sends them likes."""

from starlette.requests import ClientDisconnect, Request

from delaystore.web.errors import Refusal


async def body_of(request: Request, largest: int) -> bytes:
    """The body; raises Refusal where it has more than `largest` bytes, without reading on."""
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > largest:
                raise Refusal(413, f"The request is larger than {largest:,} bytes.")
            chunks.append(chunk)
    except ClientDisconnect:  # nobody hears the answer; it is no fault of ours to be logged
        raise Refusal(400, "The request ended before its body did.") from None
    return b"".join(chunks)
