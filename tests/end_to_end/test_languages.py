"""Languages that write no spaces between words, from files to scores."""

import csv
import random

import keras
import pytest
import sacrebleu

from pipelines import training
from pipelines.tasks import make_task
from pipelines.workdir import Workdir
from tests.end_to_end.small_config import small_config

HAN = [chr(code) for code in range(0x4E00, 0x4E00 + 700)]
KANA = "をがはにでとのもへや"


def sentence(language, rng):
    """A source of numbers, and a target of as many words of one to three Han characters."""
    numbers = [min(int(rng.paretovariate(0.7)), 400) for _ in range(rng.randint(2, 9))]
    particles = KANA if language == "ja" else [""]
    words = ["".join(HAN[(7 * n + i) % 700] for i in range(1 + n % 3)) for n in numbers]
    target = "".join(word + particles[i % len(particles)] for i, word in enumerate(words)) + "。"
    return " ".join(map(str, numbers)) + ".", target


def write_corpus(folder, language):
    """Returns the config of a run on 400 pairs."""
    rng = random.Random(0)
    for split, count in (("train", 400), ("val", 6)):
        pairs = zip(*(sentence(language, rng) for _ in range(count)), strict=True)
        for side, lines in zip(("en", language), pairs, strict=True):
            (folder / f"{split}.{side}").write_text("\n".join(lines) + "\n")
    config = small_config(folder)
    config.model.vocab_size = 600
    config.data.target_language = language
    config.train.update(steps=2, validation_sentences=4)
    return config


@pytest.mark.slow
def test_a_run_prepares_trains_validates_and_translates(tmp_path):
    config, run = write_corpus(tmp_path, "zh"), Workdir(tmp_path / "run")
    keras.utils.set_random_seed(0)
    training.train(config, run)
    rows = list(csv.DictReader((tmp_path / "run" / "metrics.csv").open()))
    assert [row["step"] for row in rows if row["validation_bleu"]] == ["2"]
    assert len(run.load_predictor()(make_task(config).evaluation_examples("val")[0])) == 6


@pytest.mark.parametrize(("language", "tokenizer"), [("zh", "zh"), ("ja", "ja-mecab")])
def test_bleu_has_the_tokenizer_of_the_language(language, tokenizer, tmp_path):
    if language == "ja":
        pytest.importorskip("MeCab")
    task = make_task(write_corpus(tmp_path, language))
    _, references = task.evaluation_examples("val")
    near = [reference[:-2] + "。" for reference in references]
    score = task.score(near, references)
    assert f"tok:{tokenizer}" in score["bleu_signature"]
    expected = sacrebleu.BLEU(tokenize=tokenizer).corpus_score(near, [references]).score
    assert score["bleu"] == pytest.approx(expected)
    assert 30 < score["bleu"] < 100
