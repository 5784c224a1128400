"""Embedders: they turn texts into vectors that can be compared."""

from app.backend.embedders.embedder import Embedder, EmbedderName


def open_embedder(name: EmbedderName) -> Embedder:
    """Raises ``EmbedderUnavailableError``. Imports only the embedder that is used."""
    if name == "hashing":
        from app.backend.embedders.hashing import HashingEmbedder  # noqa: PLC0415

        return HashingEmbedder()
    from app.backend.embedders.minilm import open_minilm  # noqa: PLC0415

    return open_minilm()
