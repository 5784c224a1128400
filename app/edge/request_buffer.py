"""A request that arrives in pieces, read by gunicorn's own parser.

Whether a request is all there is decided by the parser that reads it, and by nothing else: it runs over the bytes that
have arrived, and where it asks for more it is stopped and runs again when there is more. What it has read is kept: the
head is read once to its end, a chunked body goes on with the first chunk that was not whole. So a request costs about
as much in many pieces as in one.
"""

import io
from collections.abc import Callable, Generator
from typing import Any

from gunicorn.http.body import ChunkedReader  # type: ignore[import-untyped] # it ships no types
from gunicorn.http.message import Request  # type: ignore[import-untyped] # as above
from gunicorn.http.unreader import Unreader  # type: ignore[import-untyped] # as above

from app.contract.errors import InvalidArgument
from app.edge.uploads import Upload

MOST_FRAMING = 64 * 1024
"""Bytes that chunk sizes and their line ends may take beyond what the body itself takes."""

_PIECE = 4096
"""What the parser gets at a time where it does not say how much it wants: it copies the rest for every chunk."""


class _MoreNeeded(Exception):  # noqa: N818 - no error
    """The parser asks for bytes that have not arrived."""

    def __init__(self, wanted: int) -> None:
        super().__init__(wanted)
        self.wanted = wanted
        """How many it needs at least to go on."""


class _Arrived(Unreader):  # type: ignore[misc] # untyped base
    """The bytes that are there, as gunicorn's parser takes them."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = bytearray()
        self.at = 0
        self.ended = False

    def read(self, size: int | None = None, read_ahead: int | None = None) -> bytes:
        """As gunicorn's: `size` bytes, or without it whatever is there."""
        there = len(self.buffer) - self.at
        needed = 1 if size is None else size
        if there < needed and not self.ended:
            raise _MoreNeeded(max(needed, read_ahead or 0) - there)
        until = self.at + (max(_PIECE, read_ahead or 0) if size is None else size)
        data = bytes(memoryview(self.buffer)[self.at : until])
        self.at += len(data)
        return data

    def unread(self, data: bytes) -> None:
        """The parser hands back the end of what it took."""
        self.at -= len(data)

    def forget(self, until: int) -> None:
        """What has been read for good."""
        del self.buffer[:until]
        self.at -= until


class _Chunks(ChunkedReader):  # type: ignore[misc] # untyped base
    """Gunicorn's reader of chunked bodies, which can go on with the chunk at which it was stopped."""

    def __init__(self, request: Any, arrived: _Arrived) -> None:
        super().__init__(request, arrived)
        self._arrived = arrived
        self._kept = 0

    def parse_chunk_size(self, unreader: _Arrived, data: bytes | None = None) -> tuple[int, bytes]:
        """Called where a chunk begins."""
        unreader.forget(unreader.at - len(data or b""))
        self._kept = self.buf.tell()
        size, rest = super().parse_chunk_size(unreader, data)
        return size, rest

    def go_back(self) -> None:
        """To the beginning of the chunk that is not whole."""
        self.buf.seek(self._kept)
        self.buf.truncate()
        self._arrived.at = 0
        self.parser: Generator[bytes, None, None] | None = self.parse_chunked(self._arrived)

    @property
    def decoded(self) -> int:
        """Bytes of the body so far."""
        size: int = self.buf.tell()
        return size


class RequestBuffer:
    """A request of which some bytes are there; at its end a gunicorn request whose body is in memory, or in a file
    where `upload_for` (asked when the head is there) gives one.

    `add` and `end` raise gunicorn's errors and `ContractError` for what is refused.
    """

    def __init__(
        self,
        cfg: Any,
        address: Any,
        *,
        max_head: int,
        max_body: int,
        upload_for: Callable[[Any], Upload | None] = lambda _: None,
    ) -> None:
        self._cfg = cfg
        self._address = address
        self._max_head = max_head
        self._max_body = max_body
        self._upload_for = upload_for
        self._arrived = _Arrived()
        self._wanted = 1
        self._chunks: _Chunks | None = None
        self._came = 0
        """Bytes behind the head, read or not."""
        self._decoded = 0
        self.request: Any = None
        """There when the head is."""
        self.upload: Upload | None = None
        """Where the body goes, if not into memory."""
        self.whole = False
        """Whether it was read to its end, so that the next one begins behind it."""

    def __len__(self) -> int:
        return len(self._arrived.buffer) + (self._chunks.decoded if self._chunks else 0) + self._decoded

    @property
    def expects(self) -> bool:
        """Whether the sender waits for 100 Continue before it sends the body."""
        return self.request is not None and bool(self.request._expected_100_continue)  # noqa: SLF001 - gunicorn's

    def add(self, data: bytes) -> bool:
        """Takes more of it in. True when nothing is to be waited for any more: the request is whole, or its body is
        larger than any that is read."""
        if self.upload is not None:
            self._arrived.buffer += data[self.upload.add(data) :]
            return self._is_uploaded()
        self._arrived.buffer += data
        self._came += len(data)
        self._wanted -= len(data)
        return self._wanted <= 0 and self._go_on()

    def end(self) -> bool:
        """Nothing more comes: what is there is the request. A body that is too short is left to the app."""
        self._arrived.ended = True
        if self.upload is not None:
            raise InvalidArgument("the body could not be read to its end")
        return self._go_on()

    def take(self) -> tuple[Any, bytes]:
        """The request, and what came behind it."""
        # It has been met, or there was no need: gunicorn would ask for the body again.
        self.request._expected_100_continue = False  # noqa: SLF001 - as above
        if not self.whole:
            self.request.force_close()
        return self.request, bytes(self._arrived.buffer)

    def _go_on(self) -> bool:
        try:
            if self.request is None:
                self._read_head()
            if self.upload is not None:
                return self._is_uploaded()
            self._read_body()
        except _MoreNeeded as more:
            self._stop(more.wanted)
            return False
        return True

    def _read_head(self) -> None:
        self._arrived.at = 0
        request = Request(self._cfg, self._arrived, self._address)
        _check_head(request)
        self.request = request
        self._arrived.forget(self._arrived.at)
        self._came = len(self._arrived.buffer)
        if isinstance(request.body.reader, ChunkedReader):
            self._chunks = _Chunks(request, self._arrived)
            return
        self.upload = self._upload_for(request)
        if self.upload is not None:
            del self._arrived.buffer[: self.upload.add(self._arrived.buffer)]

    def _is_uploaded(self) -> bool:
        if self.upload is None or self.upload.left:
            return False
        self.request.body = self.upload.file
        self.whole = True
        return True

    def _read_body(self) -> None:
        chunks = self._chunks
        if chunks is not None:
            # One byte more than is read tells the app that it is too much.
            body = chunks.read(self._max_body + 1)
            self._check_framing(len(body))
            self.whole = chunks.parser is None
        else:
            reader = self.request.body.reader
            length = reader.length
            # The app refuses what says that it is too large without reading it.
            body = reader.read(length) if length <= self._max_body else b""
            self.whole = len(body) == length
        self._arrived.forget(self._arrived.at)
        self._decoded = len(body)
        self.request.body = io.BytesIO(body)

    def _stop(self, wanted: int) -> None:
        if self.request is None and len(self._arrived.buffer) > self._max_head:
            raise InvalidArgument("the headers are too large", http_code=431)
        if self._chunks is not None:
            self._check_framing(self._chunks.decoded)
            wanted = min(wanted, self._max_body + 1 - self._chunks.decoded)
            self._chunks.go_back()
        self._wanted = wanted

    def _check_framing(self, decoded: int) -> None:
        arrived = self._arrived
        if self._came - (len(arrived.buffer) - arrived.at) > 2 * decoded + MOST_FRAMING:
            raise InvalidArgument("the body comes in too many chunks that are too small")


def _check_head(request: Any) -> None:
    """What gunicorn lets through, and this server does not understand."""
    named = [(name, value) for name, value in request.headers if name in {"HOST", "TRANSFER-ENCODING"}]
    if request.version >= (1, 1) and all(name != "HOST" for name, _ in named):
        raise InvalidArgument("a request names its host in a Host header")
    if any(name == "TRANSFER-ENCODING" and value.lower() != "chunked" for name, value in named):
        raise InvalidArgument("Transfer-Encoding may be chunked and nothing else")
