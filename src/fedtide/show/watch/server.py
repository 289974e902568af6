"""The server of `fedtide watch`: read-only, for one person on one machine."""

from __future__ import annotations

import socket
from collections.abc import Callable
from importlib.resources import files
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fedtide.core.errors import ConfigError, needs, require
from fedtide.show.watch.studies import FollowedStudies

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

PAGE = {"": "text/html", "page.css": "text/css", "page.js": "text/javascript"}
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
# A report contains scripts; the sandbox keeps them from reading the other studies.
SANDBOX = {**HEADERS, "Content-Security-Policy": "sandbox allow-scripts allow-downloads"}


def serve(root: Path, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve the page until the process is stopped; `announce` receives its address."""
    needs("fedtide watch", "watch", "starlette", "uvicorn")
    import uvicorn

    require(not root.is_file(), "fedtide watch", "given a folder", str(root), "Try runs.")
    with _bound(host, port) as listener:
        shown = f"[{host}]" if ":" in host else host
        announce(f"http://{shown}:{listener.getsockname()[1]}")
        settings = uvicorn.Config(
            application(root, host),
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        uvicorn.Server(settings).run(sockets=[listener])


def _bound(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"fedtide watch: --host and --port must be an address that is free. Got {host}, {port} "
            f"({error}). Try --port 0, which takes any."
        ) from error


def application(root: Path, host: str) -> ASGIApp:
    """The application that serves the page and the studies of a folder to requests for this host."""
    from starlette.applications import Starlette
    from starlette.responses import FileResponse, JSONResponse, Response
    from starlette.routing import Route

    followed = FollowedStudies(root)

    def page(request: Request) -> Response:
        name = request.url.path.removeprefix("/")
        text = files(__package__).joinpath(name or "page.html").read_text(encoding="utf-8")
        return Response(text, media_type=PAGE[name], headers=HEADERS)

    def studies(request: Request) -> Response:
        found = {"folder": str(followed.root), "studies": followed.studies()}
        return JSONResponse(found, headers=HEADERS)

    def study(request: Request) -> Response:
        since = request.query_params.get("since", "0")
        found = followed.study(
            request.path_params["name"],
            request.query_params.get("epoch", ""),
            int(since) if since.isdecimal() else 0,
        )
        return JSONResponse(found, status_code=200 if found else 404, headers=HEADERS)

    def report(request: Request) -> Response:
        path = followed.report(request.path_params["name"])
        if path is None:
            return Response("There is no such report.", status_code=404, headers=HEADERS)
        return FileResponse(path, media_type="text/html", headers=SANDBOX)

    routes = [
        *(Route(f"/{name}", page) for name in PAGE),
        Route("/studies", studies),
        Route("/studies/{name:path}", study),
        Route("/reports/{name:path}", report),
    ]
    return HostGuard(Starlette(routes=routes), host)


class HostGuard:
    """Refuses requests that name another host.

    Otherwise a web page on another host could point its own name at this address and read the answers.
    """

    def __init__(self, app: ASGIApp, host: str) -> None:
        self._app = app
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.datastructures import Headers
        from starlette.responses import PlainTextResponse

        headers = Headers(scope=scope)
        origin = headers.get("origin")
        asked = [f"//{headers.get('host', '')}", *([origin] if origin is not None else [])]
        if all(is_trusted(_hostname(address), self._host) for address in asked):
            await self._app(scope, receive, send)
        else:
            refusal = PlainTextResponse("Not for this host.", status_code=403, headers=HEADERS)
            await refusal(scope, receive, send)


def is_trusted(name: str, host: str) -> bool:
    """May a request for `name` be answered by a server bound to `host`?"""
    if name in ("localhost", host.lower()):
        return True
    # Bound to all addresses, the server trusts each of them and the machine's own name.
    everywhere = host in ("0.0.0.0", "::")
    try:
        return ip_address(name).is_loopback or everywhere
    except ValueError:
        return everywhere and name == socket.gethostname().lower()


def _hostname(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""
