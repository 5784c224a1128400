"""The contract suite of sources, also for plug-ins. The extra ``testing`` has what it needs."""

from app.directory.testing.contract import SourceContract
from app.directory.testing.world import CannotError, Content, Person, SourceWorld, source_of

__all__ = ["CannotError", "Content", "Person", "SourceContract", "SourceWorld", "source_of"]
