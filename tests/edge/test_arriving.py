import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.edge.arriving import ArrivingRequest, TooMuchFramingError

HEAD = b"POST /x HTTP/1.1\r\nHost: x\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def with_length(body: bytes) -> bytes:
    return HEAD + b"content-length : %d\r\n\r\n" % len(body) + body


def in_chunks(pieces: list[bytes], trailer: bytes = b"") -> bytes:
    framed = b"".join(b"%x;e=1\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece)
    return CHUNKED + framed + b"0\r\n" + trailer + b"\r\n"


def feed(request: ArrivingRequest, data: bytes) -> bool:
    return request.add(data, max_head=1000, max_body=1000)


sound = st.one_of(
    st.binary(max_size=60).map(with_length),
    st.lists(st.binary(max_size=20), max_size=5).map(in_chunks),
    st.lists(st.binary(max_size=20), max_size=3).map(lambda pieces: in_chunks(pieces, b"a: b\r\nc: d\r\n")),
    st.just(HEAD + b"\r\n"),
)


@given(sound, st.data())
def test_a_sound_request_is_whole_with_its_last_byte_and_not_before(text: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    request = ArrivingRequest()
    for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        ready = feed(request, text[begin:end]) if end > begin else request.whole
        assert ready is (end == len(text))
    assert request.whole
    assert request.take() == text


@given(st.binary(max_size=400), st.lists(st.sampled_from([HEAD, b"\r\n", b"0\r\n\r\n", b"Content-Length: 5", CHUNKED])))
def test_nothing_breaks_it(noise: bytes, parts: list[bytes]) -> None:
    request = ArrivingRequest()
    for piece in (*parts, noise):
        feed(request, piece)


@pytest.mark.parametrize(
    "text",
    [
        HEAD + b"Content-Length: 1001\r\n\r\n",
        HEAD + b"Content-Length: 99999999999999999999999999\r\n\r\n",
        HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        HEAD + b"Content-Length: -5\r\n\r\n",
        HEAD + b"x" * 1001,
        CHUNKED + b"zz\r\n",
        CHUNKED + b"-5\r\n",
        CHUNKED + b"5" * 300,
        CHUNKED + b"fff\r\n" + b"x" * 1001,
    ],
)
def test_what_will_be_refused_is_not_waited_for(text: bytes) -> None:
    assert feed(ArrivingRequest(), text)


def test_chunks_that_are_nearly_all_framing_are_too_much() -> None:
    request = ArrivingRequest()
    with pytest.raises(TooMuchFramingError):
        request.add(CHUNKED + b"1\r\nx\r\n" * 100_000, max_head=1000, max_body=1_000_000)


def test_an_expectation_that_was_met_is_not_handed_on() -> None:
    request = ArrivingRequest()
    assert not feed(request, HEAD + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert request.expects
    assert feed(request, b"{}")
    assert request.take() == HEAD + b"Content-Length: 2\r\n\r\n{}"
