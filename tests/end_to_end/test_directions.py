"""The list of corpora in a config, and what is refused."""

import pytest

from pipelines.corpora import Direction, parse
from pipelines.directions import DirectedCorpora, check_vocabulary
from pipelines.experiment import choose_split
from pipelines.fields import fixed_fields, make_config
from pipelines.tasks import make_task
from t2t_keras.data.corpora import MemoryCorpus
from t2t_keras.data.tokenizers import train_tokenizer
from t2t_keras.errors import InputError
from tests.tasks import tiny


def test_a_list_of_corpora_is_parsed():
    assert parse("a:en-de, b/wmt:1.0.0:pt-BR=en ,a:en-fr,c:en-de") == [
        Direction("en-de", "a", "en", "de"),
        Direction("pt-BR-en", "b/wmt:1.0.0", "pt-BR", "en"),
        Direction("en-pt-BR", "b/wmt:1.0.0", "en", "pt-BR"),
        Direction("en-fr", "a", "en", "fr"),
        Direction("en-de.2", "c", "en", "de"),
    ]
    assert parse("") == []


def test_the_folders_of_a_run_may_move_and_its_languages_may_not():
    old, moved, other = (make_config() for _ in range(3))
    old.data.corpora, moved.data.corpora, other.data.corpora = "a:en=de", "b:en=de", "a:en-de"
    assert not list(fixed_fields(old, moved, ["data"]))
    assert [name for name, _, _ in fixed_fields(old, other, ["data"])] == ["data.corpora"]


def test_a_place_that_is_neither_a_folder_nor_a_dataset_is_named(tmp_path):
    config = make_config()
    config.data.corpora = f"{tmp_path}/missing:en-de"
    with pytest.raises(
        InputError, match="missing' is neither a folder nor a dataset with en and de"
    ):
        make_task(config).make_corpus()


def test_a_bad_text_of_a_direction_is_never_replaced_by_another_place(tmp_path):
    for place, languages in (("a", ["en", "de"]), ("b", ["en", "fr"]), ("c", ["en", "fr"])):
        (tmp_path / place).mkdir()
        for language in languages:
            (tmp_path / place / f"test.{language}").write_text("a\n")
    config = make_config()
    config.data.corpora = f"{tmp_path}/a:en-de,{tmp_path}/b:fr-en,{tmp_path}/c:fr-en"
    direction = Direction("en-fr", "", "en", "fr")
    assert make_task(config).direction_examples("test", direction) == (["a"], ["a"])
    (tmp_path / "b" / "test.fr").write_text("a\nb\n")
    with pytest.raises(InputError, match=r"b/test.en has 1 lines and .*b/test.fr has 2"):
        make_task(config).direction_examples("test", direction)


def test_the_split_of_another_folder_is_not_looked_for_in_the_corpora(tmp_path):
    config = make_config()
    config.data.update(corpora="gone:en-de", folder=str(tmp_path), test_split="dev")
    task = make_task(config)
    with pytest.raises(InputError, match=r"data\.corpora is also given"):
        task.check()  # in a training; `evaluate` takes the folder's text
    (tmp_path / "dev.en").touch()
    assert choose_split(task, "test") == "dev"
    (tmp_path / "test.en").touch()
    with pytest.raises(InputError, match="--split=test may be the corpus's own split 'test' or"):
        choose_split(task, "test")


def test_a_vocabulary_without_the_languages_is_refused():
    config = make_config()
    check_vocabulary(config, tiny.tokenizer())
    config.data.corpora = "a:en=es"
    with pytest.raises(InputError, match="the vocabulary of the run has no tokens of languages"):
        check_vocabulary(config, tiny.tokenizer())
    languages = tiny.multilingual_translator(source="target").tokenizer
    with pytest.raises(InputError, match=r"target_language .es., for which .* one of de, en, fr"):
        check_vocabulary(config, languages)


def test_the_text_of_a_vocabulary_is_sampled_as_the_batches_are():
    large = [(f"a{n}", f"b{n}") for n in range(90)]
    small = [(f"c{n}", f"d{n}") for n in range(10)]
    corpora = DirectedCorpora(
        {"x-y": MemoryCorpus({"train": large}), "x-z": MemoryCorpus({"train": small})}
    )
    joined = list(corpora.sampled_lines("train", 1.0))
    assert joined == [text.encode() for pair in large + small for text in pair]
    lines = list(corpora.sampled_lines("train", 2.0))
    counts = {line: lines.count(line) for line in lines}
    assert sum(count for line, count in counts.items() if line[:1] == b"a") == 75  # 100 · 3 / 4
    assert sum(count for line, count in counts.items() if line[:1] == b"c") == 25
    assert {counts[f"c{n}".encode()] for n in range(10)} == {2, 3}
    assert {counts.get(f"a{n}".encode(), 0) for n in range(90)} == {0, 1}
    tokenizer = train_tokenizer("bpe", lines, 280, languages=["x", "y", "z"])
    assert tokenizer.languages.codes == ["x", "y", "z"]
