"""What the page hands to a browser and takes back: signed, so that nobody else can have made it."""

import hmac
import json
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, Final

_NONCE_BYTES: Final = 18


def new_nonce() -> str:
    """Text that nobody guesses."""
    return secrets.token_urlsafe(_NONCE_BYTES)


class Signer:
    """Signs and verifies with `secret`; None: with one of its own, which ends with the process."""

    def __init__(self, secret: str | None = None) -> None:
        self._key = secrets.token_bytes(32) if secret is None else secret.encode()

    def csrf(self, nonce: str, user: str) -> str:
        """The token for forms of `user`, whose browser has the cookie `nonce`."""
        return self._signature("csrf", nonce, user)

    def verifies_csrf(self, token: str, nonce: str | None, user: str) -> bool:
        """Whether `token` is that of `csrf`."""
        expected = self.csrf(nonce or new_nonce(), user)
        return hmac.compare_digest(expected.encode(), token.encode(errors="replace"))

    def sealed(self, what: str, value: Any) -> str:
        """`value`, of JSON, as text for a cookie; `what`: its purpose."""
        text = urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
        return f"{text}.{self._signature(what, text)}"

    def opened(self, what: str, sealed: str) -> Any:
        """The inverse of `sealed`; None: it was not made here."""
        text, _, signature = sealed.partition(".")
        if not hmac.compare_digest(self._signature(what, text).encode(), signature.encode(errors="replace")):
            return None
        return json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))

    def _signature(self, *parts: str) -> str:
        text = "\0".join(parts).encode(errors="surrogatepass")
        return urlsafe_b64encode(hmac.digest(self._key, text, "sha256")).decode().rstrip("=")
