"""The embedder that the settings name."""

from app.backend.embedders.embedder import Embedder, EmbedderName


def open_embedder(name: EmbedderName) -> Embedder:
    """The embedder of that name. Raises ``EmbedderUnavailableError``."""
    if name == "hashing":
        from app.backend.embedders.hashing import HashingEmbedder  # noqa: PLC0415 - only the one in use is loaded

        return HashingEmbedder()
    from app.backend.embedders.minilm import open_minilm  # noqa: PLC0415 - needs packages that may be missing

    return open_minilm()
