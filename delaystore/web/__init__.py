"""The web page: see what waits, and operate it. An ASGI application, by itself or mounted in yours."""

from delaystore.extras import needed_for

with needed_for("the web page"):
    from delaystore.web.application import app
from delaystore.web.site import Cascade
from delaystore.web.users import Role, User

__all__ = ["Cascade", "Role", "User", "app"]
