"""The protocol of control queues: requests and answers as bytes of JSON, version 1."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from delaystore import documents
from delaystore.control._commands import PING, Asked, Command, commands
from delaystore.control._given import Given, given_in, shown
from delaystore.control._problems import ProblemCode, RequestError
from delaystore.operations.changes import MessageRequest, RequestResult
from delaystore.stores.abc import ManagementOutcome

VERSIONS: Final = (1,)
"""Those that are known; a request without one is of the last."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered: JSON. `problem`: why nothing was done, for people; None: the request was done."""

    body: bytes
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """A request about a message, read and not done yet."""

    command: Command
    request: MessageRequest

    def answer(self, result: RequestResult) -> Answer:
        """The answer to it, once it is done."""
        return Answer(_encoded(self.command.answer(result)))


class Protocol:
    """Reads requests for one endpoint. `with_bodies`: whether messages are answered with their bodies."""

    def __init__(self, endpoint: str, *, with_bodies: bool = True) -> None:
        self._endpoint = endpoint
        self._commands = commands(with_bodies=with_bodies)

    def read(self, body: bytes, asked: Asked) -> Read | Answer:
        """The request in `body`; an Answer where that is known already, as of what is no request."""
        try:
            given = given_in(body)
            self._check_version(given)
            name = self._command_of(given)
            if name == PING:
                return self._ping(given, asked)
            command = self._commands[name]
            given.only(("version", name, *command.members))
            return Read(command, command.request(given, asked))
        except RequestError as error:
            return problem_answer(error)

    @property
    def _names(self) -> Sequence[str]:
        return [*self._commands, PING]

    def _check_version(self, given: Given) -> None:
        version = VERSIONS[-1] if "version" not in given.names else given.value("version")
        if type(version) is not int or version not in VERSIONS:
            known = ", ".join(map(str, VERSIONS))
            raise RequestError(
                ProblemCode.UNKNOWN_VERSION, f"version {shown(version)} is unknown; known is {known}", known=VERSIONS
            )

    def _command_of(self, given: Given) -> str:
        found = [name for name in given.names if name in self._names]
        if len(found) > 1:
            raise RequestError(ProblemCode.BAD_REQUEST, f"give one command a message, not {' and '.join(found)}")
        if found:
            return found[0]
        others = [shown(name) for name in given.names if name != "version"][:3]
        what = f"no command in {', '.join(others)}" if others else "a command is missing"
        raise RequestError(
            ProblemCode.UNKNOWN_COMMAND, f"{what}; known are {', '.join(self._names)}", known=self._names
        )

    def _ping(self, given: Given, asked: Asked) -> Answer:
        given.only(("version", PING))
        if given.value(PING) != {}:
            raise RequestError(ProblemCode.BAD_REQUEST, f"ping takes {{}}, not {shown(given.value(PING))}")
        return Answer(
            _encoded(
                {
                    "outcome": ManagementOutcome.DONE.value,
                    "endpoint": self._endpoint,
                    "now": documents.instant(asked.now),
                    "versions": VERSIONS,
                    "commands": self._names,
                }
            )
        )


def problem_answer(error: RequestError) -> Answer:
    """The answer to a request that cannot be done."""
    return Answer(_encoded({"error": error.document()}), str(error))


def _encoded(document: dict[str, Any]) -> bytes:
    """As ASCII, so that no character can be in an answer's way."""
    return json.dumps({"version": VERSIONS[-1], **document}, separators=(",", ":")).encode()
