import errno
import random
import stat
from multiprocessing.pool import ThreadPool
from pathlib import Path

import pytest
from pydantic import SecretStr
from sqlalchemy import insert

from app.backend.schema import METADATA
from app.backend.security.secret_key import SecretKeyError
from app.backend.security.tables import KEY_CHECK
from app.backend.security.vault import UnreadableSecretError, Vault, check_secret_key, open_vault
from app.backend.settings import SelfHostedBackendSettings
from app.foundation.database.engine import open_engine, writing
from tests.tables import make_tables

from .conftest import BackendWorld

ENTROPY = random.SystemRandom()


@pytest.fixture
def vault() -> Vault:
    return Vault(b"a key of enough length", ENTROPY)


def test_decryption_requires_the_context(vault: Vault) -> None:
    sealed = vault.stored.close("тайна", "here")

    assert vault.stored.open(sealed, "here") == "тайна"
    for seal, context in ((vault.stored, "there"), (vault.pages, "here"), (Vault(b"x" * 16, ENTROPY).stored, "here")):
        with pytest.raises(UnreadableSecretError):
            seal.open(sealed, context)


def test_altered_ciphertext_is_refused(vault: Vault) -> None:
    sealed = vault.stored.close("secret", "here")

    for index in range(len(sealed) - 1):
        altered = sealed[:index] + ("A" if sealed[index] != "A" else "B") + sealed[index + 1 :]
        with pytest.raises(UnreadableSecretError):
            vault.stored.open(altered, "here")


def test_fingerprint(vault: Vault) -> None:
    fingerprint = vault.fingerprint("token")

    assert vault.matches(fingerprint, "token")
    assert not vault.matches(fingerprint, "tokem")
    assert "token" not in fingerprint
    assert Vault(b"another key, as long", ENTROPY).fingerprint("token") != fingerprint


def test_concurrent_creation_of_the_key_file(tmp_path: Path) -> None:
    settings = SelfHostedBackendSettings(database_url=f"sqlite:///{tmp_path}/sub/b.db")

    with ThreadPool(8) as pool:
        vaults = pool.map(lambda _: open_vault(settings, ENTROPY), range(32))

    (file,) = (tmp_path / "sub").iterdir()
    assert file.name == "b.db.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len({vault.fingerprint("x") for vault in vaults}) == 1


def test_postgresql_requires_a_key() -> None:
    settings = SelfHostedBackendSettings(database_url="postgresql+psycopg://u@127.0.0.1/b")

    with pytest.raises(SecretKeyError, match=r"self_hosted_backend\.secret_key is missing"):
        open_vault(settings, ENTROPY)


def test_key_file_of_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("a key of enough length\n")

    from_file = open_vault(SelfHostedBackendSettings(secret_key_file=file), ENTROPY)

    given = open_vault(SelfHostedBackendSettings(secret_key=SecretStr("a key of enough length")), ENTROPY)
    assert from_file.fingerprint("x") == given.fingerprint("x")
    with pytest.raises(SecretKeyError, match="cannot be read"):
        open_vault(SelfHostedBackendSettings(secret_key_file=tmp_path / "none"), ENTROPY)
    file.write_text("short")
    with pytest.raises(SecretKeyError, match="too short"):
        open_vault(SelfHostedBackendSettings(secret_key_file=file), ENTROPY)


def test_a_failed_write_of_the_key_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    settings = SelfHostedBackendSettings(database_url=f"sqlite:///{tmp_path}/backend.db")
    with pytest.raises(SecretKeyError, match="No space left on device"):
        open_vault(settings, ENTROPY)
    assert list(tmp_path.iterdir()) == []


def test_wrong_key_is_detected(database_url: str) -> None:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)

    check_secret_key(engine, Vault(b"the first key there was", ENTROPY))
    check_secret_key(engine, Vault(b"the first key there was", ENTROPY))
    with pytest.raises(SecretKeyError, match="is not the key"):
        check_secret_key(engine, Vault(b"some other secret key", ENTROPY))
    engine.dispose()


def test_processes_that_start_together_agree_on_the_key(database_url: str) -> None:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    vault, other = Vault(b"the first key there was", ENTROPY), Vault(b"some other secret key", ENTROPY)
    sealed = vault.stored.close("the right key", "secret_key")
    with ThreadPool(2) as pool:
        with writing(engine) as connection:
            connection.execute(insert(KEY_CHECK).values(name="secret_key", sealed=sealed))
            same, different = (pool.apply_async(check_secret_key, (engine, one)) for one in (vault, other))
            # Both wait for the first process.
            same.wait(1)
            assert not same.ready()
        same.get()
        with pytest.raises(SecretKeyError, match="is not the key"):
            different.get()
    engine.dispose()


def test_database_contains_no_plain_secret(world: BackendWorld) -> None:
    owner = world.workspace()
    token = owner("get_auth_tokens", apiKey=owner.ids["api_key"])["authTokens"][0]["token"]
    secrets = {token, owner.headers["x-service-workspace-auth-token"]}

    with world.engine.connect() as connection:
        everything = "".join(
            str(tuple(row)) for table in METADATA.sorted_tables for row in connection.execute(table.select())
        )

    assert owner.ids["workspace"] in everything
    assert not [secret for secret in secrets if secret in everything]
