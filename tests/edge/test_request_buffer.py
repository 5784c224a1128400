"""A request in pieces against gunicorn's own parser, which has it from a socket: they agree after every byte."""

from collections.abc import Callable, Sequence
from enum import Enum
from itertools import pairwise
from time import thread_time
from typing import Any

import pytest
from gunicorn.config import Config  # type: ignore[import-untyped]  # it ships no types
from gunicorn.http.parser import RequestParser  # type: ignore[import-untyped]  # as above
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.contract.errors import InvalidArgument
from app.edge.request_buffer import RequestBuffer

HEAD = b"POST /x HTTP/1.1\r\nHost: x\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
ADDRESS = ("127.0.0.1", 1)
MAX_HEAD, MAX_BODY = 4000, 1000


def config() -> Config:
    made = Config()
    for name, value in {"limit_request_line": 200, "limit_request_fields": 8, "limit_request_field_size": 300}.items():
        made.set(name, value)
    made.set("forwarder_headers", "")
    return made


CONFIG = config()


class Now(Enum):
    """What a parser says of the bytes so far."""

    WHOLE = "whole"
    WAITS = "waits"
    REFUSED = "refused"


class Waits(Exception):  # noqa: N818 - it is none
    """Gunicorn asked for more than has arrived."""


class Arrived:
    """A socket on which some bytes have arrived; it gives them in pieces of that size, and counts nothing else."""

    def __init__(self, data: bytes, piece: int) -> None:
        self.data, self.piece = data, piece

    def recv(self, size: int) -> bytes:
        if not self.data:
            raise Waits
        taken, self.data = self.data[: min(size, self.piece)], self.data[min(size, self.piece) :]
        return taken


def gunicorn_says(data: bytes, piece: int = 8192) -> tuple[Now, bytes]:
    """And the body, of what is whole."""
    try:
        request = next(RequestParser(CONFIG, Arrived(data, piece), ADDRESS))
        return Now.WHOLE, request.body.read()
    except Waits:
        return Now.WAITS, b""
    except Exception:  # noqa: BLE001 - all that it raises are refusals
        return Now.REFUSED, b""


def buffer(max_head: int = MAX_HEAD, max_body: int = MAX_BODY) -> RequestBuffer:
    return RequestBuffer(CONFIG, ADDRESS, max_head=max_head, max_body=max_body)


def we_say(text: bytes, cuts: Sequence[int]) -> list[tuple[int, Now, bytes]]:
    """After each piece, up to the one that decides: how many bytes were there, what is said, the body."""
    request = buffer()
    said: list[tuple[int, Now, bytes]] = []
    for begin, end in pairwise(sorted({0, *cuts, len(text)})):
        try:
            if request.add(text[begin:end]):
                return [*said, (end, Now.WHOLE, request.take()[0].body.read())]
        except Exception:  # noqa: BLE001 - as above
            return [*said, (end, Now.REFUSED, b"")]
        said.append((end, Now.WAITS, b""))
    return said


fields = st.sampled_from(
    [
        b"Host: x", b"Host:", b"host: y", b"Content-Length: 5", b"Content-Length: 000000000000000000000000005",
        b"content-length:0", b"Content-Length: 5 ", b"Content-Length : 5", b"Content-Length: +5",
        b"Content-Length: 5, 5", b"Content-Length: 12", b"Transfer-Encoding: chunked", b"transfer-encoding:\tChunked ",
        b"Transfer-Encoding: identity, chunked", b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: gzip",
        b"Transfer-Encoding: chunked, chunked", b"Transfer-Encoding: identity", b"Transfer-Encoding: \x0bchunked",
        b"Transfer_Encoding: chunked", b"Expect: 100-continue", b"Expect: cake", b"SCRIPT_NAME: /y", b"X: y",
        b" folded", b"X:", b":", b"x", b"Connection: close", b"X: " + b"y" * 290, b"X: " + b"y" * 310,
    ]
)  # fmt: skip
lines = st.sampled_from(
    [b"POST /x HTTP/1.1", b"GET /x HTTP/1.0", b"\r\nGET /x HTTP/1.1", b"GET /x", b"GET  /x HTTP/1.1", b"\r\n\r\nGET /x",
     b"POST /" + b"x" * 190 + b" HTTP/1.1", b"CONNECT a:1 HTTP/1.1", b"PRI * HTTP/2.0", b"GET //x HTTP/1.1", b""]
)  # fmt: skip
ends = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b"\r\r\n"])
sizes = st.sampled_from(
    [b"5", b"05", b"0000000000000000000000000005", b"5 ", b"5;e=1", b"5;" + b"e" * 290, b"5;" + b"e" * 400, b" 5",
     b"-5", b"0x5", b"", b"zz", b'5;e="a\\"b"', b"5;\r", b"A"]
)  # fmt: skip
trailers = st.sampled_from([b"", b"a: b\r\n", b"a: b\r\nc: d\r\n", b"Authorization: x\r\n", b"a\r\n", b"\n", b"a: b\n"])


@st.composite
def heads(draw: st.DrawFn) -> bytes:
    # Most begin soundly, or little that follows would ever be looked at.
    begin = draw(st.one_of(st.just(HEAD), st.builds(bytes.__add__, lines, ends)))
    return begin + b"".join(draw(st.lists(st.builds(bytes.__add__, fields, ends), max_size=5))) + draw(ends)


@st.composite
def chunked(draw: st.DrawFn) -> bytes:
    framed = b""
    for size in draw(st.lists(sizes, max_size=4)):
        framed += (
            size + draw(ends) + draw(st.sampled_from([b"12345", b"12345", b"1234567890", b"0\r\n\r\n"])) + draw(ends)
        )
    return framed + draw(st.sampled_from([b"0", b"000", b"0;e", b""])) + b"\r\n" + draw(trailers) + b"\r\n"


bodies = st.one_of(chunked(), st.binary(max_size=20), st.just(b"12345"))
requests = st.builds(bytes.__add__, st.one_of(heads(), st.just(CHUNKED)), bodies)


@pytest.mark.slow
@settings(deadline=None)
@given(requests, st.lists(st.integers(0, 600), max_size=4))
@example(CHUNKED + b"5\r\n12345\r\n0\r\n\r\nGET", [])
@example(HEAD + b"Content-Length: 0000000000000000000010\r\n\r\n1234567890", [])
@example(CHUNKED + b"5;" + b"e" * 290 + b"\r\n12345\r\n0\r\nX: y\r\n\r\n", [])
def test_what_gunicorn_would_wait_for_is_never_handed_over_and_what_is_whole_always(
    text: bytes, cuts: list[int]
) -> None:
    for places in (range(len(text)), [cut for cut in cuts if cut < len(text)], []):
        for end, said, body in we_say(text, places):
            # It may notice what is wrong (a line that is too long) only where it has to ask for more.
            whole, in_bytes = gunicorn_says(text[:end]), gunicorn_says(text[:end], piece=1)
            if said is Now.REFUSED:
                assert Now.REFUSED in (whole[0], in_bytes[0]) or is_refused_here(text), end
            else:
                assert (said, body) in (whole, in_bytes), end


def is_refused_here(text: bytes) -> bool:
    """What gunicorn takes, and this server does not."""
    head = text.partition(b"\r\n\r\n")[0].lower()
    return b"\nhost:" not in head or b"identity" in head or b"gzip" in head


def one_by_one(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "Host"),
        (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n", "chunked and nothing else"),
        (HEAD + b"Transfer-Encoding: identity, chunked\r\n\r\n", "chunked and nothing else"),
        (HEAD + b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n", "chunked and nothing else"),
        (HEAD + b"a: b\r\n" + b"x" * MAX_HEAD, "headers are too large"),
    ],
)
def test_what_is_refused_says_why(head: bytes, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        buffer().add(head)


@pytest.mark.parametrize(
    ("text", "body"),
    [
        (HEAD + b"Content-Length: 1001\r\n\r\n", b""),
        (HEAD + b"Content-Length: 99999999999999999999999999\r\n\r\n", b""),
        (CHUNKED + b"fff\r\n" + b"x" * 1001, b"x" * 1001),
        (CHUNKED + b"1f4\r\n" + b"x" * 500 + b"\r\nfffffff\r\n" + b"x" * 501, b"x" * 1001),
    ],
)
@pytest.mark.parametrize("cut", [lambda text: [text], one_by_one])
def test_what_is_too_large_is_not_waited_for(text: bytes, body: bytes, cut: Callable[[bytes], list[bytes]]) -> None:
    request = buffer()
    assert [request.add(piece) for piece in cut(text)][-1]
    assert not request.whole
    taken, rest = request.take()
    assert (taken.body.read(), rest) == (body, b"")
    assert taken.should_close()


@pytest.mark.parametrize("piece", [1, 60_000])
def test_chunks_that_are_nearly_all_framing_are_too_much(piece: int) -> None:
    request = buffer(max_body=1_000_000)
    text = CHUNKED + b"1\r\nx\r\n" * 100_000
    with pytest.raises(InvalidArgument, match="too many chunks"):
        for at in range(0, len(text), piece):
            request.add(text[at : at + piece])


def test_an_expectation_that_was_met_is_not_handed_on() -> None:
    request = buffer()
    assert not request.add(HEAD + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert request.expects
    assert request.add(b"{}GET")
    taken, rest = request.take()
    assert not taken._expected_100_continue
    assert (taken.body.read(), rest) == (b"{}", b"GET")


def test_a_body_that_ends_too_early_is_handed_over_for_the_app_to_refuse() -> None:
    request = buffer()
    assert not request.add(HEAD + b"Content-Length: 9\r\n\r\n{}")
    assert request.end()
    assert not request.whole
    assert request.take()[0].body.read() == b"{}"


def seconds(text: bytes, piece: int) -> float:
    request = buffer(max_head=64 * 1024, max_body=16 * 1024 * 1024)
    began = thread_time()
    ready: Any = None
    for at in range(0, len(text), piece):
        assert not ready
        ready = request.add(text[at : at + piece])
    assert ready
    return thread_time() - began


@pytest.mark.parametrize(
    ("text", "piece"),
    [
        pytest.param(HEAD + b"Content-Length: 4000000\r\n\r\n" + b"x" * 4_000_000, 64, id="a length"),
        pytest.param(CHUNKED + b"3d0900\r\n" + b"x" * 4_000_000 + b"\r\n0\r\n\r\n", 64, id="one chunk"),
        pytest.param(CHUNKED + b"20\r\n%b\r\n" % (b"x" * 32) * 62_500 + b"0\r\n\r\n", 64, id="many chunks"),
        pytest.param(CHUNKED + b"20\r\n%b\r\n" % (b"x" * 32) * 62_500 + b"0\r\n\r\n", 65536, id="many chunks at once"),
    ],
)
def test_a_request_in_small_pieces_costs_by_its_length(text: bytes, piece: int) -> None:
    """Anything that grew with the square would take minutes."""
    assert seconds(text, piece) < 5
