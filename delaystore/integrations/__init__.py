"""Adapters for other frameworks, a package for each, which imports its framework when it is used.

`celery`, `dramatiq` and `taskiq` make brokers keep delayed tasks in a store; `django` has models, admin and commands.
May be changed freely: everything but the names that each package offers.
May import: everything but `cli`, `server`, `testing` and `ingress`.
"""

__all__: list[str] = []
