"""Text columns: what is no UTF-8, empty, too long, or holds what AMQP's short strings cannot."""

import pyarrow as pa
import pyarrow.compute as pc

from delaystore.loading.conversion._faults import Faults
from delaystore.message import MAX_ADDRESS_BYTES, MAX_DESTINATION_BYTES, MAX_KEY_BYTES, MAX_MESSAGE_ID_BYTES


def readable(array: pa.Array, name: str, faults: Faults) -> pa.Array:
    """The text column without what is no UTF-8 (Spark does not check its strings); null there."""
    broken = not_utf8(array)
    if broken is not None:
        faults.add(broken, f"{name} is not UTF-8")
        array = pc.if_else(broken, pa.scalar(None, array.type), array)
    return array.cast(pa.string())


def not_utf8(array: pa.Array) -> pa.Array | None:
    """Where a text column holds other bytes; None: nowhere."""
    binary = array.cast(pa.large_binary())
    try:
        binary.cast(pa.large_string())
    except pa.ArrowInvalid:
        return pa.array([value is not None and not _is_utf8(value) for value in binary.to_pylist()])
    return None


def check_message_ids(array: pa.Array, faults: Faults) -> None:
    """As `message.check_message_id`."""
    faults.add(array.is_null(), "message_id is null")
    faults.add(
        pc.greater(pc.binary_length(array), MAX_MESSAGE_ID_BYTES),
        f"message_id has more than {MAX_MESSAGE_ID_BYTES} bytes",
    )
    _check_characters(array, "message_id", faults)


def check_keys(array: pa.Array, faults: Faults) -> None:
    """As `message.check_key`; null: there is none."""
    faults.add(pc.greater(pc.binary_length(array), MAX_KEY_BYTES), f"key has more than {MAX_KEY_BYTES} bytes")
    _check_characters(array, "key", faults)
    faults.add(pc.match_substring_regex(array, r"\p{Cc}"), "key contains a control character")


def check_destinations(array: pa.Array, faults: Faults) -> None:
    """As `message.check_destination`."""
    faults.add(array.is_null(), "destination is null")
    size = pc.binary_length(array)
    address = pc.starts_with(array, "/")
    faults.add(
        pc.and_(pc.invert(address), pc.greater(size, MAX_DESTINATION_BYTES)),
        f"destination has more than {MAX_DESTINATION_BYTES} bytes",
    )
    faults.add(
        pc.and_(address, pc.greater(size, MAX_ADDRESS_BYTES)),
        f"destination is an address of more than {MAX_ADDRESS_BYTES} bytes",
    )
    _check_characters(array, "destination", faults)
    faults.add(pc.match_substring_regex(array, r"\p{Cc}"), "destination contains a control character")


def _check_characters(array: pa.Array, name: str, faults: Faults) -> None:
    faults.add(pc.equal(pc.binary_length(array), 0), f"{name} is empty")
    faults.add(pc.match_substring(array, "\0"), f"{name} contains a NUL character")


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
