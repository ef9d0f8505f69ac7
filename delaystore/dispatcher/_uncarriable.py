"""What the error queue gets of headers and properties that its transport cannot carry: text, so that none is lost.

The text is JSON as stores write it, with a tag for each type that JSON lacks (`delaystore.sql.codec`).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from delaystore.headers import HEADERS_IN_BODY, RAW_HEADERS, RAW_PROPERTIES
from delaystore.message import NOTHING, DelayedMessage
from delaystore.sql.codec import encode_mapping

Carries = Callable[[Mapping[str, Any], Mapping[str, Any]], bool]
"""Whether a message of these headers and properties can be carried."""


def with_text(message: DelayedMessage, carries: Carries) -> DelayedMessage:
    """`message`, where one header holds those that cannot be carried by themselves, and one such properties."""
    headers, raw_headers = _parted(message.headers, lambda header: carries(header, NOTHING))
    properties, raw_properties = _parted(message.properties, lambda property_: carries(NOTHING, property_))
    texts = {RAW_HEADERS: encode_mapping(raw_headers), RAW_PROPERTIES: encode_mapping(raw_properties)}
    given = {name: text for name, text in texts.items() if text is not None}
    return replace(message, headers={**headers, **given}, properties=properties)


def with_headers_in_body(message: DelayedMessage) -> DelayedMessage:
    """`message`, where the body's first line holds all headers and properties, and one header the length of that."""
    headers, properties = (encode_mapping(mapping) or "{}" for mapping in (message.headers, message.properties))
    line = f'{{"headers":{headers},"properties":{properties}}}\n'.encode()
    return replace(message, body=line + message.body, headers={HEADERS_IN_BODY: len(line)}, properties=NOTHING)


def _parted(
    mapping: Mapping[str, Any], fits: Callable[[Mapping[str, Any]], bool]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    fitting = {name: value for name, value in mapping.items() if fits({name: value})}
    return fitting, {name: value for name, value in mapping.items() if name not in fitting}
