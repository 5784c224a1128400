"""The contract suite of sources, also for plug-ins. The extra ``testing`` has what it needs."""

from app.directory.testing.contract import SourceContract
from app.directory.testing.world import Content, Person, SourceWorld, UnsupportedError, source_of

__all__ = ["Content", "Person", "SourceContract", "SourceWorld", "UnsupportedError", "source_of"]
