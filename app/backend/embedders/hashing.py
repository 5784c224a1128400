"""The default embedder, which needs no model.

It hashes each word, each pair of words and each run of letters within a word to a position and a sign. The vector of a
text is their weighted sum. Texts that share words or parts of words are similar. Paraphrases are not.
"""

import re
import unicodedata
from array import array
from collections.abc import Sequence
from functools import lru_cache
from zlib import crc32

import numpy as np

from app.backend.embedders.embedder import DIMENSIONS, Vectors, unit_length

_WORD = re.compile(r"\w+")
_MAX_WORD_LENGTH = 64
_MAX_TEXT_LENGTH = 20_000
"""The characters of a text after these are ignored."""
_WORD_WEIGHT, _FREQUENT_WEIGHT, _PAIR_WEIGHT, _RUN_WEIGHT = 1.0, 0.1, 0.4, 0.4
_RUN_LENGTHS = (3, 4, 5)
_FREQUENT = frozenset(
    _WORD.findall(
        """
        a about all also an and any are as at be because been but by can could did do does for from had has have he her
        his how i if in into is it its may more most must no not of on or our out shall she should so some such than
        that the their them then there these they this those to too under up us was we were what when where which while
        who why will with would you your
        """
    )
)


class HashingEmbedder:
    """Implements ``Embedder``."""

    name = "hashing-1"

    def embed(self, texts: Sequence[str]) -> Vectors:
        vectors = np.zeros((len(texts), DIMENSIONS), np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            positions, weights = _features_of_text(text)
            vector[:] = np.bincount(positions, weights, DIMENSIONS)
        return unit_length(vectors)


def _features_of_text(text: str) -> tuple["array[int]", "array[float]"]:
    positions, weights = array("H"), array("d")
    plain = _plain(text[:_MAX_TEXT_LENGTH])
    previous = ""
    # A text without letters and digits is split at its spaces.
    for word in _WORD.findall(plain) or plain.split():
        word_positions, word_weights = _features_of_word(word[:_MAX_WORD_LENGTH])
        positions += word_positions
        weights += word_weights
        if previous:
            position, weight = _hashed(f"{previous} {word}", _PAIR_WEIGHT)
            positions.append(position)
            weights.append(weight)
        previous = "" if word in _FREQUENT else word
    return positions, weights


@lru_cache(maxsize=16_384)  # at most 30 MB: a word has fewer than 200 features of ten bytes each
def _features_of_word(word: str) -> tuple["array[int]", "array[float]"]:
    if word in _FREQUENT:
        features = [_hashed(f"={word}", _FREQUENT_WEIGHT)]
    else:
        marked = f"<{word}>"
        runs = (marked[start : start + size] for size in _RUN_LENGTHS for start in range(len(marked) - size + 1))
        features = [_hashed(f"={word}", _WORD_WEIGHT), *(_hashed(run, _RUN_WEIGHT) for run in runs)]
    positions, weights = zip(*features, strict=True)
    return array("H", positions), array("d", weights)


def _hashed(feature: str, weight: float) -> tuple[int, float]:
    # Python's own hash differs between processes.
    value = crc32(feature.encode("utf-8", "surrogatepass"))
    return (value >> 1) % DIMENSIONS, weight if value & 1 else -weight


def _plain(text: str) -> str:
    """The text without case and accents."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter))
