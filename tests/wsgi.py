"""The transport to a backend that runs in the same process.

An adapter for `requests` that calls a WSGI app directly, for tests and for embedding. The bytes that pass are those
that would travel over the network.
"""

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import requests
from requests.adapters import BaseAdapter, HTTPAdapter
from urllib3 import HTTPResponse
from urllib3._collections import HTTPHeaderDict
from werkzeug.test import create_environ, run_wsgi_app

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


class WsgiAdapter(BaseAdapter):
    """Answers every request from `app`. What `app` raises is raised here: there is no server to turn it into an
    answer."""

    def __init__(self, app: "WSGIApplication", *, remote_addr: str = "127.0.0.1") -> None:
        super().__init__()
        self._app = app
        self._remote_addr = remote_addr
        self._builder = HTTPAdapter(max_retries=0)

    def send(  # noqa: PLR0917 - the signature is the base class'
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: float | tuple[float, float] | tuple[float, None] | None = None,
        verify: bool | str = True,
        cert: bytes | str | tuple[bytes | str, bytes | str] | None = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """One request through the app."""
        parts = urlsplit(str(request.url))
        body = request.body or b""
        environ = create_environ(
            path=parts.path,
            base_url=f"{parts.scheme}://{parts.netloc}",
            query_string=parts.query,
            method=request.method or "POST",
            headers=[(_text(name), _text(value)) for name, value in request.headers.items()],
            data=body.encode() if isinstance(body, str) else body,
            environ_overrides={"REMOTE_ADDR": self._remote_addr},
        )
        content, status, headers = run_wsgi_app(self._app, environ, buffered=True)
        answer = HTTPResponse(
            body=io.BytesIO(b"".join(content)),
            headers=HTTPHeaderDict(headers.items()),
            status=int(status.split(" ", 1)[0]),
            reason=status.partition(" ")[2],
            preload_content=False,
        )
        return self._builder.build_response(request, answer)

    def close(self) -> None:
        """Nothing is open."""


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value
