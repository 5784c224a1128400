"""Conversion of LDAP attribute values."""

from typing import get_args

import pytest

from app.directory.connector import UnreadableValueError
from app.directory.connectors.ldap.settings import Conversion
from app.directory.connectors.ldap.values import CONVERSIONS

pytestmark = pytest.mark.external


def test_the_conversions_are_those_of_the_settings() -> None:
    assert set(CONVERSIONS) == set(get_args(Conversion))


@pytest.mark.parametrize(
    ("how", "value", "plain"),
    [
        ("text", "Jürgen".encode(), "Jürgen"),
        ("integer", b"-12", -12),
        ("boolean", b"TRUE", True),
        ("boolean", b"false", False),
        ("guid", bytes.fromhex("33221100554477668899aabbccddeeff"), "00112233-4455-6677-8899-aabbccddeeff"),
        ("sid", bytes.fromhex("010500000000000515000000010000000200000003000000f4010000"), "S-1-5-21-1-2-3-500"),
        ("sid", bytes.fromhex("0100000000000005"), "S-1-5"),
        ("filetime", b"133170048000000000", "2023-01-01T00:00:00Z"),
        ("filetime", b"133170048001234567", "2023-01-01T00:00:00.123000Z"),
        ("filetime", b"0", None),
        ("filetime", b"9223372036854775807", None),
        ("filetime", b"9223372036854775806", None),
        ("time", b"20270131180000Z", "2027-01-31T18:00:00Z"),
        ("time", b"20270131180000.0Z", "2027-01-31T18:00:00Z"),
        ("time", b"2027013118Z", "2027-01-31T18:00:00Z"),
        ("time", b"202701311830Z", "2027-01-31T18:30:00Z"),
        ("time", b"2027013118.5Z", "2027-01-31T18:30:00Z"),
        ("time", b"20270131190000,25+0100", "2027-01-31T18:00:00.250000Z"),
        ("time", b"20270131163000-0130", "2027-01-31T18:00:00Z"),
        ("base64", b"\xff\x00", "/wA="),
    ],
)
def test_values_become_plain(how: Conversion, value: bytes, plain: object) -> None:
    assert CONVERSIONS[how](value) == plain


@pytest.mark.parametrize(
    ("how", "value"),
    [
        ("text", b"\xff\xfe"),
        ("integer", b"many"),
        ("integer", b""),
        ("boolean", b"yes"),
        ("guid", b"short"),
        ("sid", b"\x01\x05short"),
        ("sid", b""),
        ("filetime", b"soon"),
        ("time", b"tomorrow"),
        ("time", b"20271331180000Z"),
        ("time", b"000001010000Z"),
        ("time", b"20270131180000"),
    ],
)
def test_invalid_values_are_rejected(how: Conversion, value: bytes) -> None:
    with pytest.raises(UnreadableValueError, match="is n"):
        CONVERSIONS[how](value)
