"""Moving waiting messages from one place to another without losing one.

`abc` is the contract of sources and targets, `runner` moves batch by batch, `records` reads messages of other formats.
May be changed freely: everything but the tables of unfinished runs, which a newer release must still read.
May import: the ground, `stores`, `transports`, `cascades`.
"""

__all__: list[str] = []
