"""What findings say of an ingress."""

from delaystore.cascades import LayoutWords
from delaystore.ingress.names import IngressNames


def words_of(names: IngressNames) -> LayoutWords:
    """The words for the ingress of these names."""
    return LayoutWords(
        layout="ingress",
        create="delaystore ingest create",
        another="choose its own type (--type, --exchange-type) or other names (--queue, --out), or delete it once it "
        "is empty and nobody uses it",
        astray=f"leads around the delay: messages arrive at once, and again when they are due; bind to {names.out!r} "
        "in its place, and unbind this",
        by_management=("which bindings are missing, or lead around the delay: only the management API lists them",),
    )
