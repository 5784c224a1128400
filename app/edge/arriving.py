"""Is a request all there, so that a thread can work on it without waiting for its sender?

Only the framing is looked at, and only as far as that question needs. What is malformed counts as ready: the HTTP
parser, which reads the same bytes again, refuses it without asking for more.
"""

import re

MOST_FRAMING = 64 * 1024
"""Bytes that chunk sizes and their line ends may take beyond what the body itself takes."""

_LONGEST_CHUNK_LINE = 256
_FRAMING = re.compile(rb"\r\n(content-length|transfer-encoding|expect)[ \t]*:[ \t]*([^\r\n]*)", re.IGNORECASE)
_EXPECT = re.compile(rb"\r\nexpect[ \t]*:[^\r\n]*", re.IGNORECASE)


class TooMuchFramingError(Exception):
    """A chunked body whose chunks are so small that they cost more than they carry."""


class ArrivingRequest:
    """The bytes of a request so far."""

    __slots__ = (
        "_body_at",
        "_body_ends",
        "_buffer",
        "_chunk_at",
        "_chunked",
        "_decoded",
        "_looked",
        "expects",
        "whole",
    )

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._looked = 0
        self._body_at = 0
        """Where the body begins; 0 before the head is there."""
        self._body_ends = 0
        self._chunked = False
        self._chunk_at = 0
        self._decoded = 0
        self.expects = False
        """Whether the sender waits for 100 Continue before it sends the body."""
        self.whole = False
        """Whether the request is there to its end, as opposed to ready to be refused."""

    def __len__(self) -> int:
        return len(self._buffer)

    def add(self, data: bytes, *, max_head: int, max_body: int) -> bool:
        """Takes more of it in. True when nothing is to be waited for any more: it is whole, or it will be refused.

        Raises `TooMuchFramingError`.
        """
        self._buffer += data
        if not self._body_at and not self._find_body():
            return len(self._buffer) > max_head or self.whole
        if self._chunked:
            return self._walk_chunks(max_body)
        if self._body_ends - self._body_at > max_body:
            return True
        self.whole = len(self._buffer) >= self._body_ends
        return self.whole

    def take(self) -> bytes:
        """All bytes, without an expectation that was met."""
        if self.expects:
            head = _EXPECT.sub(b"", bytes(self._buffer[: self._body_at]))
            return head + bytes(self._buffer[self._body_at :])
        return bytes(self._buffer)

    def _find_body(self) -> bool:
        """Looks for the end of the head, and for what it says of the body. A head that contradicts itself is whole:
        the parser refuses it."""
        end = self._buffer.find(b"\r\n\r\n", max(0, self._looked - 3))
        self._looked = len(self._buffer)
        if end < 0:
            return False
        self._body_at = self._body_ends = end + 4
        lengths: list[bytes] = []
        for name, value in _FRAMING.findall(self._buffer, 0, end):
            lowered = name.lower()
            if lowered == b"content-length":
                lengths.append(value.strip())
            elif lowered == b"expect":
                self.expects = value.strip().lower() == b"100-continue"
            else:
                self._chunked = value.strip().lower() == b"chunked"
        self._chunk_at = self._body_at
        if lengths and not self._chunked and lengths[0].isdigit() and len(lengths) == 1:
            self._body_ends += int(lengths[0][:19])
        elif lengths:
            self._chunked = False
        return True

    def _walk_chunks(self, max_body: int) -> bool:
        buffer = self._buffer
        while True:
            line_end = buffer.find(b"\r\n", self._chunk_at, self._chunk_at + _LONGEST_CHUNK_LINE)
            if line_end < 0:
                return len(buffer) - self._chunk_at >= _LONGEST_CHUNK_LINE
            try:
                size = int(buffer[self._chunk_at : line_end].partition(b";")[0].strip() or b"x", 16)
            except ValueError:
                return True
            if size <= 0:
                self.whole = size == 0 and buffer.find(b"\r\n\r\n", line_end) >= 0
                return self.whole or size < 0 or len(buffer) - line_end > MOST_FRAMING
            if self._decoded + size > max_body and len(buffer) - line_end > max_body - self._decoded:
                return True
            if line_end + 2 + size + 2 > len(buffer):
                return False
            self._chunk_at = line_end + 2 + size + 2
            self._decoded += size
            if self._chunk_at - self._body_at > 2 * self._decoded + MOST_FRAMING:
                raise TooMuchFramingError
