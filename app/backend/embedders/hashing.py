"""The embedder that needs no model.

Each word, each pair of words and each run of letters within a word is hashed to a position and a sign; a text's vector
is the weighted sum. Texts that share words or parts of words come out similar; texts that mean the same in other words
do not.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from zlib import crc32

import numpy as np

from app.backend.embedders.embedder import DIMENSIONS, Vectors, unit_length

_WORD = re.compile(r"\w+")
_TEXTS_AT_ONCE = 512
_LONGEST_WORD = 64
_LONGEST = 20_000
"""Characters of a text that count."""
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
    """See the module. Remembers the features of words, of which a language has few; ``remembers`` features at most, of
    about a hundred bytes each.
    """

    name = "hashing-1"

    def __init__(self, remembers: int = 500_000) -> None:
        self._remembers = remembers
        self._remembered = 0
        self._features: dict[str, list[tuple[int, float]]] = {}

    def embed(self, texts: Sequence[str]) -> Vectors:
        parts = [self._embed(texts[first : first + _TEXTS_AT_ONCE]) for first in range(0, len(texts), _TEXTS_AT_ONCE)]
        return np.concatenate(parts) if parts else np.zeros((0, DIMENSIONS), np.float32)

    def _embed(self, texts: Sequence[str]) -> Vectors:
        positions: list[int] = []
        weights: list[float] = []
        for number, text in enumerate(texts):
            row = number * DIMENSIONS
            for position, weight in self._features_of(text):
                positions.append(row + position)
                weights.append(weight)
        sums = np.bincount(np.array(positions, np.int64), np.array(weights, np.float64), len(texts) * DIMENSIONS)
        return unit_length(sums.reshape(len(texts), DIMENSIONS).astype(np.float32))

    def _features_of(self, text: str) -> Iterator[tuple[int, float]]:
        plain = _plain(text[:_LONGEST])
        # A text of signs alone still has something to be recognized by.
        words = _WORD.findall(plain) or plain.split()
        before = ""
        for word in words:
            # What is longer is no word, and would be remembered at its whole length.
            beginning = word[:_LONGEST_WORD]
            known = self._features.get(beginning)
            if known is None:
                known = list(_features_of_word(beginning))
                self._remember(beginning, known)
            yield from known
            if before:
                yield _hashed(f"{before} {word}", _PAIR_WEIGHT)
            before = "" if word in _FREQUENT else word

    def _remember(self, word: str, features: list[tuple[int, float]]) -> None:
        if self._remembered + len(features) > self._remembers:
            # Begun anew: the words that are in use are soon there again, and nobody can fill it for good.
            self._features = {}
            self._remembered = 0
        self._features[word] = features
        self._remembered += len(features)


def _plain(text: str) -> str:
    """Without case and accents."""
    if text.isascii():
        return text.lower()
    apart = unicodedata.normalize("NFKD", text.casefold())
    return "".join(letter for letter in apart if not unicodedata.combining(letter))


def _features_of_word(word: str) -> Iterator[tuple[int, float]]:
    if word in _FREQUENT:
        yield _hashed(f"={word}", _FREQUENT_WEIGHT)
        return
    yield _hashed(f"={word}", _WORD_WEIGHT)
    marked = f"<{word}>"
    for length in _RUN_LENGTHS:
        for start in range(len(marked) - length + 1):
            yield _hashed(marked[start : start + length], _RUN_WEIGHT)


def _hashed(feature: str, weight: float) -> tuple[int, float]:
    # Python's own hash differs from process to process.
    value = crc32(feature.encode("utf-8", "surrogatepass"))
    return (value >> 1) % DIMENSIONS, weight if value & 1 else -weight
