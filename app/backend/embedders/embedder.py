"""The port of embedders, which turn a text into a vector.

``hashing`` implements it without dependencies. ``minilm`` recognizes paraphrases. It needs the extra ``embeddings``
and the package of the model.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
EmbedderName = Literal["hashing", "minilm"]

DIMENSIONS = 384
"""The length of every embedder's vectors."""


class EmbedderUnavailableError(RuntimeError):
    """The configured embedder is not installed. One line for the operator, with what to do."""


class Embedder(Protocol):
    """Returns the same vector for the same text in every process: float32, of length 1, or zeros for a text without
    content. Thread-safe."""

    @property
    def name(self) -> str:
        """Stored with every vector. It must change when the vectors change."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """The vectors, shape (number of texts, ``DIMENSIONS``)."""
        ...


def unit_length(vectors: Vectors) -> Vectors:
    """Scales each vector to length 1, except zeros."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return scaled
