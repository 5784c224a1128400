"""Values of which expressions can be asked, and the check that an object's are such.

The library ends the process on data that is nested too deep, and cannot take a NUL or half a surrogate pair; so nothing
is handed to it that was not looked at here.
"""

from collections.abc import Mapping

from app.directory.fields import MAX_INTEGER, MAX_NESTING, name_of_type

MAX_ELEMENTS = 2_000
"""The longest list in an object of which an expression with a loop is asked; building a list takes quadratic time."""

Value = Mapping[str, object]
"""An object as expressions see it."""


class UnfitValueError(ValueError):
    """A value of which no expression can be asked; the text begins with the attribute."""


def fit(value: Value, *, loops: bool = False) -> None:
    """Whether expressions may be asked of an object. Raises ``UnfitValueError``.

    ``loops``: whether one of them goes through lists.
    """
    for name, inner in value.items():
        if type(inner) is str:
            # Most attributes are short texts: what looks at the others takes longer than all else here.
            if not inner.isascii() or "\0" in inner:
                _fit_text(inner, name)
        elif inner is not None and type(inner) is not bool:
            _fit(inner, name, MAX_NESTING, loops=loops)


def fit_part(value: Value, *, loops: bool = False) -> Value:
    """The attributes of an object of which expressions may be asked."""
    found = {}
    for name, inner in value.items():
        try:
            fit({name: inner}, loops=loops)
        except UnfitValueError:
            continue
        found[name] = inner
    return found


def _fit(value: object, name: str, depth: int, *, loops: bool) -> None:
    if isinstance(value, str):
        _fit_text(value, name)
    elif value is None or isinstance(value, bool):
        pass
    elif isinstance(value, int | float):
        if isinstance(value, int) and not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise UnfitValueError(f"{name}: the number has more than 63 bits")
    elif depth == 0:
        raise UnfitValueError(f"{name}: is nested more than {MAX_NESTING} deep")
    elif isinstance(value, list):
        if loops and len(value) > MAX_ELEMENTS:
            raise UnfitValueError(
                f"{name}: has {len(value):,} values; expressions go through {MAX_ELEMENTS:,} at most"
                " (for members there is each: members)"
            )
        for inner in value:
            _fit(inner, name, depth - 1, loops=loops)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise UnfitValueError(f"{name}: a key in it is {name_of_type(key)}, not text")
            _fit_text(key, name)
            _fit(inner, f"{name}.{key}", depth - 1, loops=loops)
    else:
        raise UnfitValueError(f"{name}: {name_of_type(value)} is nothing that expressions know")


def _fit_text(value: str, name: str) -> None:
    if "\0" in value:
        raise UnfitValueError(f"{name}: contains a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UnfitValueError(f"{name}: contains half of a surrogate pair") from None
