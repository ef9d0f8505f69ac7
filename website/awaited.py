"""Methods made of others, in the reference: `send = awaited(DelayedDelivery.send)` is shown as `async def send`."""

from typing import Any

import griffe


class Awaited(griffe.Extension):
    """Puts the method that is awaited in place of the attribute that it is assigned to."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Go through all classes of a package that has been read."""
        for module in _modules(pkg):
            for owner in module.classes.values():
                if not owner.is_alias:
                    _replace(owner)


def _modules(module: griffe.Module) -> list[griffe.Module]:
    below = [each for each in module.modules.values() if not each.is_alias]
    return [module, *(found for each in below for found in _modules(each))]


def _replace(owner: griffe.Class) -> None:
    for name, attribute in list(owner.attributes.items()):
        value = attribute.value
        if isinstance(value, griffe.ExprCall) and str(value.function) == "awaited":
            method = _method(owner, str(value.arguments[0]))
            shown = griffe.Function(
                name, parameters=method.parameters, returns=method.returns, docstring=method.docstring, parent=owner
            )
            shown.labels.add("async")
            owner.set_member(name, shown)


def _method(owner: griffe.Class, written: str) -> griffe.Function:
    """The method that is written as `DelayedDelivery.send`, its base classes included."""
    name, _, method = written.partition(".")
    found = owner.module[name] if name in owner.module.members else owner
    target = found.final_target if found.is_alias else found
    function = target.all_members[method]
    return function.final_target if function.is_alias else function
