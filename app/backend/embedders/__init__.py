"""Embedders: they turn texts into vectors that can be compared."""

from app.backend.embedders.embedder import Embedder, EmbedderName


def open_embedder(name: EmbedderName) -> Embedder:
    """The embedder of this name, the only one that is imported. Raises ``EmbedderUnavailableError``."""
    if name == "hashing":
        from app.backend.embedders.hashing import HashingEmbedder  # noqa: PLC0415

        return HashingEmbedder()
    from app.backend.embedders.minilm import open_minilm  # noqa: PLC0415

    return open_minilm()
