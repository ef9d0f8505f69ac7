"""Names of headers that delaystore writes: NServiceBus' own where it has one, so that its tools can read them."""

from typing import Final

EXCEPTION_TYPE: Final = "NServiceBus.ExceptionInfo.ExceptionType"
EXCEPTION_MESSAGE: Final = "NServiceBus.ExceptionInfo.Message"
STACK_TRACE: Final = "NServiceBus.ExceptionInfo.StackTrace"
TIME_OF_FAILURE: Final = "NServiceBus.TimeOfFailure"
FAILED_QUEUE: Final = "NServiceBus.FailedQ"
FAILURE_COUNT: Final = "delaystore.failure-count"
DUE_TIME: Final = "delaystore.due-time"
EXPIRATION: Final = "delaystore.expiration"
"""Keeps a message's own expiration where it must not take effect: in the error queue and in native delays."""
RAW_HEADERS: Final = "delaystore.raw-headers"
"""Headers as text: of a message that cannot be decoded, or those that the error queue cannot take."""
RAW_PROPERTIES: Final = "delaystore.raw-properties"
"""Properties as text, likewise."""
HEADERS_IN_BODY: Final = "delaystore.headers-in-body"
"""Bytes of the body's first line, which holds headers and properties that the error queue cannot take."""
