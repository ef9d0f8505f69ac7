"""TLS to a broker: whom we trust, and who we say we are."""

import ssl

from delaystore.errors import ConfigurationError


def tls_context(
    ca_file: str | None = None, client_certificate: str | None = None, client_key: str | None = None
) -> ssl.SSLContext:
    """A context that verifies the broker against `ca_file` (None: the system's authorities).

    It presents `client_certificate` (PEM, with its key in the same file or in `client_key`) where one is given.
    Raises ConfigurationError, naming the file that cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"the CA file {ca_file!r} cannot be used: {_file_error(error)}; give a PEM file"
        ) from None
    if client_certificate is None:
        if client_key is not None:
            raise ConfigurationError("a client key is given without its certificate; give client_certificate too")
        return context
    try:
        # a password, even none, keeps OpenSSL from asking at the terminal for that of an encrypted key
        context.load_cert_chain(client_certificate, client_key, password=lambda: "")
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"the client certificate {client_certificate!r} cannot be used with the key "
            f"{client_key or client_certificate!r}: {_file_error(error)}"
        ) from None
    return context


def _file_error(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
