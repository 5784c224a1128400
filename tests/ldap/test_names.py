"""Normalized DNs are equal if and only if they name the same entry."""

import pytest

pytestmark = pytest.mark.external


@pytest.fixture(autouse=True)
def _library(library: None) -> None:
    """Names are parsed by it."""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("CN=User 7,OU=People,DC=corp", "cn=user 7,ou=people,dc=corp"),
        ("cn=a, ou=b ,dc=c", "cn=a,ou=b,dc=c"),
        ("cn=two  blanks,dc=c", "cn=two blanks,dc=c"),
        (r"cn=Smith\, John,dc=c", r"cn=smith\2c john,dc=c"),
        ('cn="Smith, John",dc=c', r"cn=smith\, john,dc=c"),
        ("cn=a+uid=b,dc=c", "UID=b+CN=a,dc=c"),
        ("2.5.4.3=a,0.9.2342.19200300.100.1.25=c", "cn=a,dc=c"),
        ("commonName=a,domainComponent=c", "cn=a,dc=c"),
        ("userid=a,dc=c", "uid=a,dc=c"),
        ("cn=Jürgen,dc=c", "cn=JÜRGEN,dc=c"),
        (r"cn=J\c3\bcrgen,dc=c", "cn=jürgen,dc=c"),
        ("cn=Ju\u0308rgen,dc=c", "cn=jürgen,dc=c"),
        ("cn=STRASSE,dc=c", "cn=straße,dc=c"),
        (r"cn=\ a\ ,dc=c", "cn=a,dc=c"),
        ("x-own=a,dc=c", "X-OWN=A,dc=C"),
    ],
)
def test_spellings_of_one_dn_are_equal(one: str, other: str) -> None:
    from app.directory.connectors.ldap.values import normalized

    assert normalized(one) == normalized(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("cn=a,dc=c", "cn=b,dc=c"),
        (r"cn=a\,dc\=c", "cn=a,dc=c"),
        ("cn=a+uid=b,dc=c", "cn=a,uid=b,dc=c"),
        ("cn=a", "uid=a"),
        ("cn=a b,dc=c", "cn=ab,dc=c"),
        ("no name", "cn=no name"),
        ("cn=a,", "cn=a"),
    ],
)
def test_other_dns_are_not_equal(one: str, other: str) -> None:
    from app.directory.connectors.ldap.values import normalized

    assert normalized(one) != normalized(other)


def test_is_below() -> None:
    from app.directory.connectors.ldap.values import is_below

    assert is_below("cn=a,dc=c", "dc=c")
    assert is_below("dc=c", "dc=c")
    assert is_below("dc=c", "")
    assert not is_below("cn=a,xdc=c", "dc=c")
