"""An object store on loopback with the requests of S3, and faults. Keys are paths: ``/BUCKET/KEY``."""

import hashlib
import http.server
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LAST_MODIFIED = "Wed, 21 Oct 2026 07:28:00 GMT"


class ObjectStore(http.server.ThreadingHTTPServer):
    """``fault``: the fault of each request. Empty: none."""

    daemon_threads = True
    request_queue_size = 50

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []
        """``HEAD /bucket/key`` or ``GET /bucket/key bytes=0-99``."""
        self.fault = ""
        self.honours_conditions = True
        self.cut: float | None = None
        """The share of all bytes of an object after which connections break."""
        self.on_get: Callable[[], None] = lambda: None
        """It is called after each answered GET."""
        self.stopped = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def etag(self, path: str) -> str:
        return f'"{hashlib.md5(self.objects[path]).hexdigest()}"'

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores clients that close the connection."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ObjectStore

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()
        self.server.on_get()

    def _answer(self) -> None:
        store, path = self.server, self.path
        asked = self.headers.get("Range", "")
        store.requests.append(f"{self.command} {path} {asked}".strip())
        fault = store.fault
        if fault == "hang":
            store.stopped.wait(30)
            self.close_connection = True
        elif fault == "html":
            self._send(200, b"<html>Sign in</html>", {"Content-Type": "text/html"})
        elif fault.isdigit():
            self._send(int(fault), b"<Error><Message>sig=hunter2</Message></Error>", {})
        elif path not in store.objects:
            self._send(404, b"<Error><Code>NoSuchKey</Code></Error>", {})
        elif store.honours_conditions and self.headers.get("If-Match", store.etag(path)) != store.etag(path):
            self._send(412, b"<Error><Code>PreconditionFailed</Code></Error>", {})
        else:
            self._send_object(store.objects[path], store.etag(path), asked)

    def _send_object(self, whole: bytes, etag: str, asked: str) -> None:
        fault = self.server.fault
        headers = {"ETag": etag, "Last-Modified": LAST_MODIFIED}
        if fault == "no etag":
            del headers["ETag"]
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", asked)
        if match is None or fault == "all of it":
            self._send(200, whole, headers)
            return
        first, last = int(match[1]), min(int(match[2]), len(whole) - 1)
        part = whole[first : last + 1]
        headers["Content-Range"] = f"bytes {first}-{last}/{len(whole)}"
        end = None if self.server.cut is None else max(int(len(whole) * self.server.cut) - first, 0)
        self._send(206, part, headers, end)

    def _send(self, status: int, body: bytes, headers: dict[str, str], end: int | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.server.fault == "drip":
            for letter in body:
                if self.server.stopped.wait(0.05):
                    break
                self.wfile.write(bytes([letter]))
            self.close_connection = True
        elif end is not None and end < len(body):
            self.wfile.write(body[:end])
            self.close_connection = True
        else:
            self.wfile.write(body)


@contextmanager
def running_store() -> Iterator[ObjectStore]:
    store = ObjectStore()
    thread = threading.Thread(target=store.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield store
    finally:
        store.stopped.set()
        store.shutdown()
        store.server_close()
        thread.join()
