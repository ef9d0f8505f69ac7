"""Pages: templates filled in, everything escaped, with links under the prefix and the reader's rights."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from delaystore import __version__
from delaystore.server.web import formatting
from delaystore.server.web.http import STATIC, Signer, href, new_nonce, prefix_of
from delaystore.server.web.users import USER, User

NONCE: Final = "delaystore-web"
"""The cookie that ties forms to a browser."""
NOTICE: Final = "delaystore-notice"
"""The cookie that carries a sentence to the page after a change."""
CSRF: Final = "csrf"
"""The field of forms that holds their token."""
_STRANGER: Final = User("")
_A_MINUTE: Final = 60


@dataclass(frozen=True, slots=True)
class Screen:
    """One entry of the navigation."""

    name: str
    path: str


class Pages:
    """Makes the pages of one application. `title`: its title, such as the endpoint's name."""

    def __init__(self, title: str, signer: Signer, screens: tuple[Screen, ...]) -> None:
        self._title = title
        self._signer = signer
        self._screens = screens
        self._environment = Environment(
            loader=PackageLoader("delaystore.server.web"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(formatting.FILTERS)
        self._versions = {
            each.name: sha256(each.read_bytes()).hexdigest()[:12]
            for each in (files("delaystore.server.web") / "static").iterdir()
        }

    def page(self, request: Request, template: str, *, status: int = 200, **content: Any) -> Response:
        """The page of a template; it sets the cookie of forms, and shows the result of the change just before."""
        nonce = request.cookies.get(NONCE) or new_nonce()
        notice = request.cookies.get(NOTICE)
        text = self.fragment(
            request,
            template,
            nonce=nonce,
            notice=None if notice is None else self._signer.opened(NOTICE, notice),
            **content,
        )
        response = HTMLResponse(text.encode(errors="backslashreplace"), status)  # an unreadable row may hold anything
        if NONCE not in request.cookies:
            self._set(request, response, NONCE, nonce)
        if notice is not None:
            response.delete_cookie(NOTICE, path=self._cookie_path(request))
        return response

    def fragment(self, request: HTTPConnection, template: str, *, nonce: str | None = None, **content: Any) -> str:
        """The text of a template, such as a part of a page."""
        user: User = request.scope.get(USER, _STRANGER)
        known = nonce or request.cookies.get(NONCE, "")
        return self._environment.get_template(template).render(
            request=request,
            title=self._title,
            version=__version__,
            screens=self._screens,
            user=user,
            logged_in=USER in request.scope,
            may_operate=user.may_operate,
            href=partial(href, request),
            static=partial(self._static, request),
            csrf=Markup('<input type="hidden" name="{}" value="{}">').format(CSRF, self._signer.csrf(known, user.name)),
            **{"notice": None, **content},
        )

    def problem(
        self, request: Request, status: int, title: str, sentence: str, headers: Mapping[str, str] | None = None
    ) -> Response:
        """A page that says in one sentence why there is no other."""
        response = self.page(request, "problem.html", status=status, heading=title, sentence=sentence, here=None)
        for name, value in (headers or {}).items():
            response.headers[name] = value
        return response

    def then(self, request: Request, path: str, query: Mapping[str, Any] | None = None, notice: str = "") -> Response:
        """Go on to another page after a change, and show its result there."""
        response = RedirectResponse(href(request, path, query), 303)
        if notice:
            self._set(request, response, NOTICE, self._signer.sealed(NOTICE, notice[:1000]), _A_MINUTE)
        return response

    def is_ours(self, request: Request, token: str) -> bool:
        """Whether a form's token is one that this browser and user got from us."""
        user: User = request.scope[USER]
        return self._signer.verifies_csrf(token, request.cookies.get(NONCE), user.name)

    def _static(self, request: HTTPConnection, name: str) -> str:
        return href(request, f"{STATIC}/{name}", {"v": self._versions[name]})

    def _set(self, request: Request, response: Response, name: str, value: str, seconds: int | None = None) -> None:
        response.set_cookie(
            name,
            value,
            max_age=seconds,
            path=self._cookie_path(request),
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="lax",
        )

    @staticmethod
    def _cookie_path(request: HTTPConnection) -> str:
        return prefix_of(request.scope) or "/"
