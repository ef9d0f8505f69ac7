"""Names of queues and exchanges: the characters that none may have.

RabbitMQ drops line breaks from names that are declared or bound, so another queue than the one named would answer.
"""

from unicodedata import category


def control_character(name: str) -> str | None:
    """The first control character of `name` (Unicode's category Cc, such as a line break); None: it has none."""
    if name.isprintable():
        return None
    return next((character for character in name if category(character) == "Cc"), None)
