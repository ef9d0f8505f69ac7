"""/livez and /readyz, for whoever starts and watches services."""

from collections.abc import Callable, Sequence

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from delaystore.service.state import ServiceState

_NOT_KEPT = {"Cache-Control": "no-store"}


def probes(state: Callable[[], ServiceState], *, reasons: bool) -> Sequence[BaseRoute]:
    """The two routes: 200 or 503, with JSON that says what is not ready. `reasons`: also why, which may name hosts."""

    def live(_request: Request) -> Response:
        return _answer(state(), lambda state: state.live)

    def ready(_request: Request) -> Response:
        return _answer(state(), lambda state: state.ready)

    def _answer(found: ServiceState, judged: Callable[[ServiceState], bool]) -> Response:
        return JSONResponse(found.as_dict(reasons=reasons), 200 if judged(found) else 503, _NOT_KEPT)

    return [Route("/livez", live, methods=["GET"]), Route("/readyz", ready, methods=["GET"])]


def probe_application(state: Callable[[], ServiceState]) -> Starlette:
    """The two routes alone, with reasons."""
    return Starlette(routes=probes(state, reasons=True))
