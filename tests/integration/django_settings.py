"""Settings for the cases of Django; DJANGO_DATABASE is a URL of the tests' servers."""

import os

from sqlalchemy import make_url

from examples.django_shop.shop.settings import INSTALLED_APPS as SHOP
from examples.django_shop.shop.settings import MIDDLEWARE, TEMPLATES

__all__ = ["MIDDLEWARE", "TEMPLATES"]

_URL = make_url(os.environ["DJANGO_DATABASE"])
_ENGINES = {"sqlite": "sqlite3", "postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql"}
if _URL.get_backend_name() in ("mysql", "mariadb"):
    import pymysql

    pymysql.version_info = (2, 2, 7, "final", 0)  # Django asks for mysqlclient's
    pymysql.install_as_MySQLdb()

DATABASES = {
    "default": {
        "ENGINE": f"django.db.backends.{_ENGINES[_URL.get_backend_name()]}",
        "NAME": _URL.database,
        "USER": _URL.username or "",
        "PASSWORD": _URL.password or "",
        "HOST": _URL.query.get("unix_socket") or _URL.query.get("host") or _URL.host or "",
        "PORT": str(_URL.port or ""),
        "TEST": {"NAME": os.environ.get("DJANGO_TEST_NAME")},
    }
}
STATIC_URL = "static/"
SECRET_KEY = "only for tests"
USE_TZ = True
ROOT_URLCONF = "tests.integration.django_urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [app for app in SHOP if app != "shop"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DELAYSTORE = {"ENDPOINT": "shop"}
