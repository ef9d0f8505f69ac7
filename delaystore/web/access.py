"""Who may ask for what: decided once, ahead of every page and every answer of the API."""

import asyncio
import inspect
from base64 import b64decode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from threading import BoundedSemaphore
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from delaystore.bridge import in_thread
from delaystore.errors import DelaystoreError
from delaystore.web.errors import Refusal, answer_error, answer_refusal
from delaystore.web.origin import why_not_local, why_not_own
from delaystore.web.paths import is_api, is_public, keep_prefix
from delaystore.web.users import USER, Account, Accounts, Role, User

Dependency = Callable[[Request], User | Response | Awaitable[User | Response | None] | None]
"""Of a host application: whoever asks; None: nobody is logged in; a Response, as a redirect to a login, is sent."""

_Origin = tuple[str, str]
"""The name and the address of whoever logs in."""
READING: Final = frozenset({"GET", "HEAD"})
_PAUSE: Final = 0.5
"""Seconds that a wrong password costs whoever tries."""
_MOST_LOGINS: Final = 8
"""Passwords of this process that wait for their check, or are checked. More are refused, except for `_MOST_USERS`."""
_MOST_USERS: Final = 64
"""As `_MOST_LOGINS`, for the first password of a known name from an address."""
_MOST_OF_ONE: Final = 2
"""As `_MOST_LOGINS`, for one name from one address."""
_CHECKS: Final = BoundedSemaphore(2)
"""Passwords that are checked at the same time: a hash takes 16 MiB, and a core."""
_TURN: Final = 0.02
"""Seconds between two attempts to begin a check."""
_PENDING: Final[dict[tuple[asyncio.AbstractEventLoop, bytes], tuple["_Origin", "asyncio.Future[User | None]"]]] = {}
"""Checks that have not ended, by the digest of name and password."""
_LOCAL: Final = User("", Role.OPERATE)
_CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="delaystore", charset="UTF-8"'}
_NOBODY: Final = "This page is open to this machine only, as no user is configured: set DELAYSTORE_WEB_USERS."


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Who is let in. `users` and `tokens` empty: there are none; `authenticate` None: the host does not say who asks.

    `read_only`: nobody changes anything.
    """

    users: Accounts
    tokens: tuple[Account, ...] = ()
    authenticate: Dependency | None = None
    read_only: bool = False

    async def user_of(self, request: Request) -> User | Response:
        """Whoever asks, with what they may do; or the answer that the host gives in place of ours. Raises Refusal."""
        user = await self._whoever(request)
        if self.read_only and isinstance(user, User):
            return User(user.name, Role.READ)
        return user

    async def _whoever(self, request: Request) -> User | Response:
        kind, _, credentials = request.headers.get("authorization", "").partition(" ")
        if is_api(request) and kind.lower() == "bearer":
            return self._bearer(credentials.strip())
        if is_api(request) and self.authenticate is not None and not self.users:
            raise Refusal(401, "The API takes a token: Authorization: Bearer TOKEN.", {"WWW-Authenticate": "Bearer"})
        if self.users and (self.authenticate is None or is_api(request)):
            return await self._basic(kind, credentials, request.client.host if request.client else "")
        if self.authenticate is not None:
            return await self._host_says(request, self.authenticate)
        why = why_not_local(request)
        if why is not None:
            raise Refusal(403, f"{_NOBODY} This request is refused because {why}.")
        return _LOCAL

    def _bearer(self, token: str) -> User:
        accepted = [account for account in self.tokens if account.accepts(token)]  # all are compared, always
        if not accepted:
            raise Refusal(401, "This token is not known.", {"WWW-Authenticate": "Bearer"})
        return accepted[0].user

    async def _basic(self, kind: str, credentials: str, address: str) -> User:
        if kind.lower() != "basic":
            raise Refusal(401, "Log in with a name and a password.", _CHALLENGE)
        name, password = _decoded(credentials)
        user = self.users.known(name, password) or await _log_in(self.users, name, password, address)
        if user is None:
            await asyncio.sleep(_PAUSE)
            raise Refusal(401, "Name or password are wrong.", _CHALLENGE)
        return user

    @staticmethod
    async def _host_says(request: Request, dependency: Dependency) -> User | Response:
        answer = dependency(request)
        user = await answer if inspect.isawaitable(answer) else answer
        if user is None:
            raise Refusal(401, "Log in first.")
        return user


class Access:
    """Lets requests to `app` that `guard` lets in; puts the user into the scope.

    Whatever is no GET is a change: it needs the role operate, and must come from a page of ours or from a program.
    """

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application."""
        answer = None
        keep_prefix(scope)
        if scope["type"] == "http" and not is_public(scope):
            request = Request(scope)
            try:
                answer = await self._let_in(request)
            except HTTPException as error:
                answer = await answer_refusal(request, error)
            except DelaystoreError as error:
                answer = await answer_error(request, error)
        await (answer or self._app)(scope, receive, send)

    async def _let_in(self, request: Request) -> Response | None:
        """The answer of the host, in place of ours; None: the request may go on. Raises HTTPException."""
        user = await self._guard.user_of(request)
        if isinstance(user, Response):
            return user
        request.scope[USER] = user
        if request.method not in READING:
            _check_change(request, user)
        return None


async def _log_in(users: Accounts, name: str, password: str, address: str) -> User | None:
    """The user of that name and password; None: there is none. Raises Refusal where too many ask.

    Requests with one name and password share a check.
    """
    key, origin = (asyncio.get_running_loop(), users.digest(name, password)), (name, address)
    if key not in _PENDING:
        pending = [each for each, _ in list(_PENDING.values())]
        own = pending.count(origin)
        most = _MOST_USERS if name in users and not own else _MOST_LOGINS
        if own >= _MOST_OF_ONE or len(pending) >= most:
            await asyncio.sleep(_PAUSE)
            raise Refusal(429, "Too many logins are being checked. Try again in a few seconds.", {"Retry-After": "2"})
        check = asyncio.ensure_future(_check_password(users, name, password))
        check.add_done_callback(lambda _: _PENDING.pop(key))
        _PENDING[key] = origin, check
    return await asyncio.shield(_PENDING[key][1])


async def _check_password(users: Accounts, name: str, password: str) -> User | None:
    while not _CHECKS.acquire(blocking=False):
        await asyncio.sleep(_TURN)
    try:
        return users.known(name, password) or await in_thread("delaystore-login", lambda: users.log_in(name, password))
    finally:
        _CHECKS.release()


def _check_change(request: Request, user: User) -> None:
    why = why_not_own(request)
    if why is not None:
        raise Refusal(403, f"Nothing was changed, because {why}.")
    if not user.may_operate:
        raise Refusal(403, "You may look, and change nothing: that takes the role operate.")


def _decoded(credentials: str) -> tuple[str, str]:
    try:
        name, _, password = b64decode(credentials, validate=True).decode().partition(":")
    except ValueError:
        return "", ""
    return name, password
