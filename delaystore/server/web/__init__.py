"""The web page: see waiting messages, and change them. An ASGI application, alone or mounted in yours."""

from delaystore.registry import needed_for

with needed_for("the web page"):
    from delaystore.server.web.application import app
from delaystore.server.web._site import Cascade
from delaystore.server.web.users import Role, User

__all__ = ["Cascade", "Role", "User", "app"]
