"""The port by which a text becomes a vector that can be compared.

``Embedder`` is the port. Two implement it: ``hashing`` needs nothing and is instant; ``minilm`` understands
paraphrases and needs the extra ``embeddings`` and the package of the model.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
EmbedderName = Literal["hashing", "minilm"]

DIMENSIONS = 384
"""Of every embedder's vectors."""


class EmbedderUnavailableError(RuntimeError):
    """The embedder that the settings name is not installed; one line for the operator that says what to do."""


class Embedder(Protocol):
    """Obligations: the same text always gives the same vector, in every process; vectors are float32 and of length 1,
    or all zero for a text without content. Safe to call from several threads.
    """

    @property
    def name(self) -> str:
        """Stored with every vector. It changes whenever the vectors of a text do."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """The vectors, shape (number of texts, ``DIMENSIONS``)."""
        ...


def unit_length(vectors: Vectors) -> Vectors:
    """The vectors, each scaled to length 1; those of zeros stay."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return scaled
