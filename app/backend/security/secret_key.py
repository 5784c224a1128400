"""Reads the secret key of the self-hosted backend. Beside a SQLite database, a file with one is created."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from app.backend.settings import SelfHostedBackendSettings
from app.foundation.database.url import parse_url
from app.foundation.files import make_folder, read_small_file, restrict_to_owner

_MIN_KEY_BYTES = 16


class SecretKeyError(ValueError):
    """The secret key is missing, unusable, or not the key of the database. The text is one line for the operator."""


def secret_key_of(settings: SelfHostedBackendSettings) -> bytes:
    """The secret key. Raises ``SecretKeyError``."""
    if settings.secret_key is not None and settings.secret_key.get_secret_value():
        return _checked(settings.secret_key.get_secret_value().encode(), "self_hosted_backend.secret_key")
    if settings.secret_key_file is not None:
        return _read_key(settings.secret_key_file)
    url = parse_url(settings.database_url)
    if url.get_backend_name() != "sqlite":
        raise SecretKeyError(
            "self_hosted_backend.secret_key is missing: with PostgreSQL it is required,"
            " so that all nodes use the same one"
        )
    return _key_file(Path(f"{url.database}.key"))


def _read_key(path: Path) -> bytes:
    try:
        return _checked(read_small_file(path).strip(), str(path))
    except OSError as error:
        raise SecretKeyError(f"the secret key file {path} cannot be read: {error.strerror}") from error


def _key_file(path: Path) -> bytes:
    """The key in ``path``. Creates it if necessary: of several processes, one creates it and all read the same key."""
    if not path.exists():
        try:
            make_folder(path.parent)
            # Written under a temporary name (mkstemp creates it with mode 0600), so that no process reads half a key.
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(os.urandom(32).hex().encode())
                    file.flush()
                    os.fsync(file.fileno())
                with suppress(FileExistsError):
                    os.link(name, path)
            finally:
                Path(name).unlink()
        except OSError as error:
            raise SecretKeyError(f"the secret key file {path} cannot be created: {error.strerror}") from error
    else:
        # The file of an earlier version, or a copy, may be readable by other users.
        with suppress(OSError):
            restrict_to_owner(path)
    return _read_key(path)


def _checked(key: bytes, name: str) -> bytes:
    if len(key) < _MIN_KEY_BYTES:
        raise SecretKeyError(f"{name} is too short: at least {_MIN_KEY_BYTES} bytes")
    return key
