"""The storage of SCIM resources follows the contract of the library."""

from collections.abc import Iterator
from functools import cache
from itertools import count

import pytest
from scim2_models import ScimProvider
from scim2_server.testing import ScimStorageContract
from scim2_server.utils import load_default_provider

from app.commands.schema import METADATA
from app.foundation.database.engine import open_engine, writing
from app.service.scim.members import RESOURCE
from app.service.scim.storage import KEY, MEMBER, StoredResources
from tests.service.scim.conftest import Clock

_provider = cache(load_default_provider)
"""The tests only read it, and building its models takes half a second."""


class TestStoredResources(ScimStorageContract):
    @pytest.fixture
    def provider(self) -> ScimProvider:
        return _provider()

    @pytest.fixture
    def storage(self, database_url: str, provider: ScimProvider) -> Iterator[StoredResources]:
        engine, numbers = open_engine(database_url), count(1)
        METADATA.create_all(engine, tables=[RESOURCE, KEY, MEMBER])
        with writing(engine) as connection:
            yield StoredResources(
                provider, 1, new_id=lambda: f"{next(numbers):016x}", clock=Clock(), connection=connection
            )
        engine.dispose()
