"""Who may ask for what: decided once, ahead of every page and every answer of the API."""

import asyncio
import inspect
import time
from base64 import b64decode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from threading import BoundedSemaphore
from typing import Final, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from delaystore.errors import DelaystoreError
from delaystore.processes import in_thread
from delaystore.server.web.errors import Refusal, answer_error, answer_refusal
from delaystore.server.web.http import is_api, is_public, keep_prefix, why_not_local, why_not_own
from delaystore.server.web.users import USER, Account, Accounts, Role, User

Dependency = Callable[[Request], User | Response | Awaitable[User | Response | None] | None]
"""Of a host application: the user; None: no user is logged in; a Response, as a redirect to a login, is sent."""

_SiteOrigin = tuple[str, str]
"""The name and the address of the client that logs in."""
READING: Final = frozenset({"GET", "HEAD"})
_PAUSE: Final = 0.5
"""Seconds that a wrong password costs the client."""
_MOST_LOGINS: Final = 8
"""Passwords of this process that are checked, or wait for that. Beyond it those of unknown names are not checked: their
answer comes as late, and is the same."""
_MOST_USERS: Final = 64
"""As `_MOST_LOGINS`, for known names. Beyond it all logins are refused, whether their name is known or not."""
_MOST_PENDING: Final = 256
"""Logins without an answer, checked or not. Beyond it all logins are refused: each takes turns on the event loop."""
_MOST_OF_ONE: Final = 2
"""As `_MOST_USERS`, for one name from one address; beyond `_MOST_LOGINS` it has one."""
_AT_ONCE: Final = 2
"""Passwords that are checked at the same time: a hash takes 16 MiB, and a core."""
_TURN: Final = 0.02
"""Seconds between two attempts to begin a check."""
_LOCAL: Final = User("", Role.OPERATE)
_CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="delaystore", charset="UTF-8"'}
_LOCAL_ONLY: Final = "This page accepts only local requests, because no user is configured. Set DELAYSTORE_WEB_USERS."


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Which requests are accepted. `users` and `tokens` empty: there are none.

    `authenticate` None: the host does not say who asks. `read_only`: no user can change anything.
    """

    users: Accounts
    tokens: tuple[Account, ...] = ()
    authenticate: Dependency | None = None
    read_only: bool = False

    async def user_of(self, request: Request) -> User | Response:
        """The user of the request, or the answer that the host gives in place of our own. Raises Refusal."""
        user = await self._found_user(request)
        if self.read_only and isinstance(user, User):
            return User(user.name, Role.READ)
        return user

    async def _found_user(self, request: Request) -> User | Response:
        kind, _, credentials = request.headers.get("authorization", "").partition(" ")
        if is_api(request) and kind.lower() == "bearer":
            return self._bearer(credentials.strip())
        if is_api(request) and self.authenticate is not None and not self.users:
            raise Refusal(
                401,
                "The API needs a token. Send the header Authorization: Bearer TOKEN.",
                {"WWW-Authenticate": "Bearer"},
            )
        if self.users and (self.authenticate is None or is_api(request)):
            return await self._basic(kind, credentials, request.client.host if request.client else "")
        if self.authenticate is not None:
            return await self._host_says(request, self.authenticate)
        why = why_not_local(request)
        if why is not None:
            raise Refusal(403, f"{_LOCAL_ONLY} This request is refused because {why}.")
        return _LOCAL

    def _bearer(self, token: str) -> User:
        accepted = [account for account in self.tokens if account.accepts(token)]  # all are compared, always
        if not accepted:
            raise Refusal(401, "The token is unknown.", {"WWW-Authenticate": "Bearer"})
        return accepted[0].user

    async def _basic(self, kind: str, credentials: str, address: str) -> User:
        if kind.lower() != "basic":
            raise Refusal(401, "Log in with a name and a password.", _CHALLENGE)
        name, password = _decoded(credentials)
        user = self.users.known(name, password) or await _log_in(self.users, name, password, address)
        if user is None:
            await asyncio.sleep(_PAUSE)
            raise Refusal(401, "The name or the password is wrong.", _CHALLENGE)
        return user

    @staticmethod
    async def _host_says(request: Request, dependency: Dependency) -> User | Response:
        answer = dependency(request)
        user = await answer if inspect.isawaitable(answer) else answer
        if user is None:
            raise Refusal(401, "Log in first.")
        return user


class AccessGate:
    """Passes requests to `app` that `guard` accepts; puts the user into the scope.

    Each request except GET is a change: it needs the role operate, and must come from our page or from a program.
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
        """The answer of the host, in place of our own; None: the request may go on. Raises HTTPException."""
        user = await self._guard.user_of(request)
        if isinstance(user, Response):
            return user
        request.scope[USER] = user
        if request.method not in READING:
            _check_change(request, user)
        return None


class _Login(NamedTuple):
    """A login that has no answer yet. `is_checked` False: its name is unknown, and it only takes as long."""

    origin: _SiteOrigin
    is_checked: bool
    answer: asyncio.Future[User | None]


_PENDING: Final[dict[tuple[asyncio.AbstractEventLoop, bytes], _Login]] = {}
"""Logins that have no answer yet, by the digest of name and password."""


async def _log_in(users: Accounts, name: str, password: str, address: str) -> User | None:
    """The user of that name and password; None: there is none. Raises Refusal where too many ask.

    Requests with one name and password share a check. Refusals do not depend on which names are known.
    """
    key, origin = (asyncio.get_running_loop(), users.digest(name, password)), (name, address)
    if key not in _PENDING:
        pending = list(_PENDING.values())
        own, checked = sum(each.origin == origin for each in pending), sum(each.is_checked for each in pending)
        is_crowded = checked >= _MOST_LOGINS
        is_full = checked >= _MOST_USERS or len(pending) >= _MOST_PENDING
        if is_full or own >= (1 if is_crowded else _MOST_OF_ONE):
            await asyncio.sleep(_PAUSE)
            raise Refusal(429, "Too many logins are being checked. Try again in a few seconds.", {"Retry-After": "2"})
        is_checked = name in users or not is_crowded
        answer = asyncio.ensure_future(_CHECKS.check(users, name, password) if is_checked else _CHECKS.pretend())
        answer.add_done_callback(lambda _: _PENDING.pop(key))
        _PENDING[key] = _Login(origin, is_checked, answer)
    return await asyncio.shield(_PENDING[key].answer)


class _Checks:
    """Checks passwords, `_AT_ONCE` at a time."""

    def __init__(self) -> None:
        self._free = BoundedSemaphore(_AT_ONCE)
        self._took = 0.0
        """Seconds of the last check."""

    async def check(self, users: Accounts, name: str, password: str) -> User | None:
        """The user of that name and password; None: there is none."""
        await self._turn()
        began = time.monotonic()
        try:
            return users.known(name, password) or await in_thread(
                "delaystore-login", lambda: users.log_in(name, password)
            )
        finally:
            self._took = time.monotonic() - began
            self._free.release()

    async def pretend(self) -> None:
        """Take as long as a check, its turn included, and no core."""
        await self._turn()
        self._free.release()
        await asyncio.sleep(self._took)

    async def _turn(self) -> None:
        while not self._free.acquire(blocking=False):
            await asyncio.sleep(_TURN)


_CHECKS: Final = _Checks()


def _check_change(request: Request, user: User) -> None:
    why = why_not_own(request)
    if why is not None:
        raise Refusal(403, f"Nothing was changed, because {why}.")
    if not user.may_operate:
        raise Refusal(403, "Your user is read-only. Changes need the role operate.")


def _decoded(credentials: str) -> tuple[str, str]:
    try:
        name, _, password = b64decode(credentials, validate=True).decode().partition(":")
    except ValueError:
        return "", ""
    return name, password
