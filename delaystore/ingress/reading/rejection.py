"""Why an arrival cannot be stored."""


class RejectedArrivalError(Exception):
    """An arrival that is no message for the store; its text is one sentence that says why.

    It goes to the rejected queue, with this text in a header.
    """
