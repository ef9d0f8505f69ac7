"""What can go wrong with a private server."""


class ServerError(Exception):
    """A private server could not be used."""


class ServerMissingError(ServerError):
    """The server's programs are not installed here."""


class ServerFailedError(ServerError):
    """The server is installed but did not start, stop or answer; the message ends with the tail of its log."""
