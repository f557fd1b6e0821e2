"""The reference page of config fields, and what is said of each field."""

import pytest

from pipelines.fields import FIELDS
from pipelines.reference import reference
from t2t_keras.tasks.search_settings import GeneratorSettings, ParserSettings, TranslatorSettings
from tests.end_to_end.binaries import ROOT

PAGE = ROOT / "pipelines" / "configs" / "README.md"
NAMES = [
    (task, part, name) for task in FIELDS for part in FIELDS[task] for name in FIELDS[task][part]
]


def test_the_page_is_the_generated_one():
    assert PAGE.read_text() == reference(), "python -m pipelines.reference > " + str(PAGE)


@pytest.mark.parametrize("task", FIELDS)
def test_the_page_explains_every_field_in_a_sentence(task):
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    texts = {row[0].strip("| `"): row[3] for row in rows}
    for part in FIELDS[task].values():
        for name in part:
            assert texts[name].endswith(".") and len(texts[name]) > 8, name


@pytest.mark.parametrize(("task", "part", "name"), NAMES)
def test_a_field_allows_its_default(task, part, name):
    field = FIELDS[task][part][name]
    assert field.allowed.check(name, field.default) == field.default


PAPERS = {"beam_size": 21, "length_penalty": 0.3, "max_extra_tokens": 300}  # wsj_parsing.py


@pytest.mark.parametrize(("kind", "task", "others"), [
    (TranslatorSettings, "translation", {}), (ParserSettings, "parsing", PAPERS),
    (GeneratorSettings, "language_model", {}),
])  # fmt: skip
def test_a_predictor_decodes_as_the_config_of_its_task(kind, task, others):
    for name, field in FIELDS[task]["decode"].items():
        assert getattr(kind(), name) == others.get(name, field.default), name
