"""Every fenced example of README and of the guides in pipelines/docs is run, shortened.

So are the commands of the serving README; test_serving_readme.py sends its requests.
"""

import ast
import json
import re
import subprocess
import sys

import pytest

from pipelines.datasets.english_german import Builder
from pipelines.fields import FIELDS
from t2t_keras.data import FolderCorpus
from tests.datasets.small_corpus import shrink
from tests.end_to_end import binaries
from tests.end_to_end.guides import (
    BLOCKS,
    FEW_STEPS,
    PAGES,
    PATHS,
    ROOT,
    RUN,
    SHORT,
    TEXT,
    example,
    find,
    flags_of,
    link_project,
    run_bash,
    run_python,
    scores_in,
)
from tests.interop import m2m100_folder, marian_folder
from tests.processes import run_command

NOT_RUN_HERE = {
    ("README.md", "tools/quickstart.sh"): "tests/end_to_end/test_quickstart.py, and CI",
    ("README.md", "docker run"): "never; tests/serving/test_serving_readme.py sends its request",
    ("README.md", "pipelines.demo"): "tests/serving/test_demo.py",
    ("README.md", "-m pdoc"): "tests/test_api_reference.py",
    ("README.md", "--model="): "tests/interop/test_hub.py, with a local hub",
    ("pretrained.md", "--model="): "tests/interop/test_hub.py, with a local hub",
    ("fine_tuning.md", "--model="): "tests/interop/test_hub.py, with a local hub",
    ("m2m100_nllb.md", "docker run"): "never; tests/serving/test_native_client.py loads an export",
    ("serving/README.md", "docker run"): "never; see README.md",
    ("serving.md", "docker run"): "never; see README.md",
    ("serving.md", "curl"): "tests/serving/test_serving_readme.py sends its request",
    ("serving/README.md", "curl"): "tests/serving/test_serving_readme.py sends the requests",
    ("data_formats.md", "--apache_beam"): "tests/end_to_end/test_apache_beam.py",
    ("data_formats.md", "--data_service"): "tests/end_to_end/test_data_service.py",
    **{
        ("translators_files.md", word): "tests/end_to_end/test_translators_files.py"
        for word in (
            *("python3 -m venv converters", "md2po --no-code-blocks", "--input=app.po"),
            *("translate_catalog", "odf2po", "po4a-updatepo", "--input=strings.xml"),
            *("etree.parse", "en.strings", "webvtt.read"),
        )
    },
}
"""{(page, word of a block): which test runs such a command, or why none can}"""

ENDINGS = ("de", "deu_Latn", "en", "eng_Latn", "mrg", "neg", "src", "trg")
"""Of files `train.…`, whose names look like those of fields."""


@pytest.fixture(scope="session")
def place(made_once):
    """A folder with the project's `pipelines` and `tools`, and the built-in corpus, smaller."""

    def make(place):
        link_project(place)
        (place / "pairs").mkdir()
        binaries.write_folder(place / "pairs")
        with pytest.MonkeyPatch.context() as patch:
            shrink(patch)
            Builder(data_dir=place / "datasets").download_and_prepare()

    return made_once("readme", make)


# README, serving, documents -----------------------------------------------------------------------

COMMANDS = example("README.md", "pipelines.export --workdir=runs/grammar")
LOADING = example("README.md", "tf.saved_model.load")
FIT = example("README.md", "t2t.Transformer(")
LANGUAGE_MODEL = example("README.md", "t2t.TransformerLM(")
PICTURES = example("README.md", "pipelines.visualize")
EXPORT = example("serving/README.md", "# writes export/1")
INT8 = example("serving/README.md", "--precision=int8")
ENGINE = example("serving/README.md", "export_ctranslate2")
DOCUMENT = example("documents.md", "letter.en")
DOCUMENTS = example("documents.md", "translator.documents")
PROTECTED = example("documents.md", "--protected_pattern")
PLACEHOLDERS = example("documents.md", "--config.data.placeholders=8")
PACKED = example("batch_precision_device.md", "batching=packed")
REMATERIALIZED = example("batch_precision_device.md", "keras.RematScope():")
AUDIT = example("batch_precision_device.md", "device_audit.py")


@pytest.fixture(scope="session")
def commands(place, made_once):
    """The place where the first commands of README have been run."""

    def make(_):
        script = COMMANDS.replace("--workdir=runs/grammar\n", f"--workdir=runs/grammar{SHORT}\n", 1)
        script = script.replace("--split=test", "--split=test --beam_size=1 --batch_size=500")
        (place / "commands.out").write_text(run_bash(script, place))

    made_once("readme_commands", make)
    return place


@pytest.mark.slow
def test_the_commands_of_the_readme(commands):
    printed = (commands / "commands.out").read_text()
    from_workdir, from_saved_model = printed.splitlines()[-3], printed.splitlines()[-1]
    assert '"bleu_signature"' in printed and from_workdir == from_saved_model
    command = [sys.executable, "-c", LOADING]  # a process without this library
    assert b"tf.Tensor([b'" in subprocess.check_output(command, cwd=commands)
    run_bash(PICTURES, commands)
    assert (commands / "runs" / "attention" / "attention.html").exists()


@pytest.mark.slow
def test_the_commands_of_the_serving_readme(commands):
    (commands / "typical.en").write_text("The old man sees a dog.\nShe sleeps.\n")
    first, second = (run_bash(script, commands, "cpu").split() for script in (EXPORT, INT8))
    records = [
        json.loads((commands / path / "assets.extra" / "export.json").read_text())["precision"]
        for path in (first[-1], second[-1])
    ]
    assert records == ["float32", "int8"]
    pytest.importorskip("ctranslate2")
    run_bash(ENGINE.partition("\n")[2], commands)  # it is installed
    assert (commands / "engine" / "model.bin").exists()


@pytest.mark.slow
def test_documents(commands, tmp_path):
    (tmp_path / "runs").symlink_to(commands / "runs")  # another page exports to `export` as well
    (tmp_path / "letter.en").write_text("The old man sees a dog. She sleeps.\n\n  It works.\n")
    stdout = run_bash(DOCUMENT, tmp_path, signatures="document")
    translation = (tmp_path / "letter.de").read_text()
    assert re.fullmatch(r".*\n\n  .*\n", translation)
    assert stdout.endswith("\n" + translation)
    plain, with_terms = map(ast.literal_eval, run_python(DOCUMENTS, tmp_path).splitlines())
    assert plain == [translation] and "Dackel" in with_terms[0]
    spans = re.findall(r"</?b>|\{.*?\}|SKU-\d+", run_bash(PROTECTED, tmp_path))
    assert spans == ["<b>", "</b>", "{count}", "SKU-17"]


@pytest.mark.slow
def test_placeholders(place):
    [train, *others] = PLACEHOLDERS.splitlines()
    stdout = run_bash("\n".join([train + SHORT, *others]), place)
    spans = re.findall(r"</?b>|\{.*?\}|%s", stdout)
    assert sorted(spans) == ["%s", "</b>", "<b>", "{name}"]
    assert (place / "export_placeholders" / "1" / "saved_model.pb").exists()


@pytest.mark.slow
def test_model_fit(place):
    stdout = run_python(FIT, place)
    assert "['drei sieben']" in stdout
    assert float(re.search(r"exact: (.*)", stdout)[1]) > 0.9
    assert float(re.search(r"chrF: (.*)", stdout)[1]) > 90
    assert (place / "digits" / "1" / "saved_model.pb").exists()


@pytest.mark.slow
def test_a_language_model(place):
    stdout = run_python(LANGUAGE_MODEL, place)
    assert float(re.findall(r"perplexity: ([\d.]+)", stdout)[-1]) < 5  # 305 by chance


@pytest.mark.slow
def test_batch_precision_device(place):
    run_bash(PACKED.rstrip() + SHORT, place)
    assert (place / "runs" / "packed" / "checkpoints" / "average_00000004").exists()
    assert "loss" in run_python(REMATERIALIZED, place)
    assert "bookkeeping" in run_bash(AUDIT, place)


# Your own language pair, and what reads its run ---------------------------------------------------

SPLITS = example("own_language_pair.md", "paste corpus.en")
CONFIG = example("own_language_pair.md", "def get_config")
OWN_PAIR = example("own_language_pair.md", "pipelines.prepare")
READ_SHARDS = example("data_formats.md", "np.fromfile")
READ_CHECKPOINT = example("data_formats.md", "load_checkpoint")
ASK = example("questions.md", "n_best")
TERMS = example("terms_and_ensembles.md", "printf")
TERMS_IN_PYTHON = example("terms_and_ensembles.md", "t2t.load")
EXPORT_WITH_TERMS = example("terms_and_ensembles.md", "--signatures=serving_default,terms")
ENSEMBLE = example("terms_and_ensembles.md", "for seed in")
BACK_TRANSLATION = [
    example("back_translation.md", word) for word in (":reverse", "--sample", "<BT>")
]


@pytest.fixture(scope="session")
def own_pair(made_once):
    """The place where the commands of the guide have been run on 400 lines in 20 steps."""

    def make(place):
        link_project(place)
        texts = zip(*binaries.pairs(400, seed=7), strict=True)
        for language, lines in zip(("en", "fr"), texts, strict=True):
            (place / f"corpus.{language}").write_text("\n".join(lines) + "\n")
        sizes = {"'1,1000p'": "'1,20p'", "'1001,2000p'": "'21,40p'", "'2001,$p'": "'41,$p'"}
        script = SPLITS
        for old, new in sizes.items():
            assert old in script
            script = script.replace(old, new)
        run_bash(script, place)
        (place / "en_fr.py").write_text(CONFIG)
        config = f"--config=en_fr.py {flags_of(binaries.SMALL)}"
        (place / "own_pair.out").write_text(
            run_bash(OWN_PAIR.replace("--config=en_fr.py", config), place)
        )

    return made_once("own_pair", make)


def test_the_script_of_the_guide_refuses_files_that_are_not_aligned(tmp_path):
    for language, count in (("en", 5_000), ("fr", 4_999)):
        (tmp_path / f"corpus.{language}").write_text("a line\n" * count)
    done = run_command("bash", "-c", SPLITS, cwd=tmp_path, code=1)
    assert not list((tmp_path / "pairs").iterdir())
    assert done.stderr == "corpus.en and corpus.fr have different numbers of lines\n"


@pytest.mark.slow
def test_your_own_language_pair(own_pair):
    lines = (own_pair / "own_pair.out").read_text().splitlines()
    scored = next(i for i, line in enumerate(lines) if line.startswith("{"))
    assert json.loads(lines[scored])["sentences"] == 20
    assert lines[scored + 1 : scored + 4] == lines[-3:]  # of the workdir, of the export
    english, french = (
        [
            line
            for split in ("train", "val", "test")
            for line in (own_pair / "pairs" / f"{split}.{language}").read_text().splitlines()
        ]
        for language in ("en", "fr")
    )
    assert len(set(zip(english, french, strict=True))) == len(english) > 300


@pytest.mark.slow
def test_what_reads_a_run(own_pair):
    assert re.search(r"\d+ pairs; the first source: \[\d+.* 1\]", run_python(READ_SHARDS, own_pair))
    assert "model/" in run_python(READ_CHECKPOINT, own_pair)
    assert "t2t_keras" not in READ_SHARDS + READ_CHECKPOINT
    n_best, prefixed, scores, tokens = run_python(ASK, own_pair).splitlines()[-4:]
    assert n_best.startswith("[[Translation(text=") and prefixed.startswith("['un")
    assert "Scores(log_probabilities=" in scores and re.match(r"\[\('.*', -\d", tokens)


@pytest.mark.slow
def test_terms_and_an_ensemble(own_pair):
    [by_workdir] = run_bash(TERMS, own_pair).splitlines()
    assert "deux cents" in by_workdir
    assert by_workdir in run_python(TERMS_IN_PYTHON, own_pair)
    assert run_bash(EXPORT_WITH_TERMS, own_pair).splitlines()[-1] == by_workdir
    config = f"--config=en_fr.py {flags_of(binaries.SMALL)}{FEW_STEPS}"
    printed = run_bash(ENSEMBLE.replace("--config=en_fr.py", config), own_pair)
    assert scores_in(printed)[0]["sentences"] == 20
    assert (own_pair / "ensemble_export" / "1" / "saved_model.pb").exists()


@pytest.mark.slow
def test_back_translation(place):
    german = [german for _, german in binaries.pairs(20, seed=9)]
    (place / "mono.de").write_text("\n".join(german) + "\n")
    flags = f"{flags_of(binaries.SMALL)} --config.train.validation_sentences=0"
    flags += " --config.model.vocab_size=400"  # odd characters
    script = "".join(BACK_TRANSLATION).replace(
        "--config.data.folder", f"{flags} --config.data.folder"
    )
    scores = scores_in(run_bash(script, place))
    assert [found["sentences"] for found in scores] == [10, 10]
    drawn = (place / "mono.en").read_text().splitlines()
    assert len(drawn) == 20
    train = {
        code: (place / "mixed" / f"train.{code}").read_text().splitlines() for code in ("en", "de")
    }
    assert train["en"][300:] == [f"<BT> {line}" if line else "" for line in drawn]
    assert train["de"][300:] == german


# Many languages, pretrained models ----------------------------------------------------------------

MANY = example("many_languages.md", "multi30k_en_de_fr")
ZERO_SHOT = example("many_languages.md", "--source_language=de")
LANGUAGES = example("many_languages.md", "translator.languages")
IMPORT = example("pretrained.md", "--from=opus-mt-en-de")
TUNE = example("fine_tuning.md", "--config=workdir:runs/opus")
LORA = example("fine_tuning.md", "enable_lora")
SERVE_NLLB = example("m2m100_nllb.md", "--from=nllb")
TUNE_NLLB = example("m2m100_nllb.md", "--config=workdir:runs/nllb")


def test_the_pairs_of_the_lora_guide_are_aligned_and_not_blank(tmp_path, monkeypatch):
    lines = {"en": "\ufeffa 0\r\na\r1\n\na 3\n", "de": "b 0\nb 1\nb 2\nb\r3\n"}
    (tmp_path / "pairs").mkdir()
    for language, text in lines.items():
        (tmp_path / "pairs" / f"train.{language}").write_bytes(text.encode())
    monkeypatch.chdir(tmp_path)
    names = {"FolderCorpus": FolderCorpus}
    exec(re.search(r"^rows = .*?\n\n", LORA, re.DOTALL | re.MULTILINE)[0], names)
    found = [(row["source"], row["target"]) for row in names["pairs"]]
    assert found == [(b"a 0", b"b 0"), (b"a\r1", b"b 1"), (b"a 3", b"b\r3")]


@pytest.mark.slow
def test_the_commands_of_many_languages(place):
    (place / "multi30k").mkdir()
    binaries.write_corpora(place / "multi30k")
    for split in ("train", "val"):
        text = (place / "multi30k" / f"{split}.de").read_text()
        (place / "multi30k" / f"{split}.fr").write_text(text.upper())
    flags = f"{' '.join(binaries.SMALL[1:])}{FEW_STEPS}"
    script = MANY.replace("--workdir=runs/many\n", f"--workdir=runs/many {flags}\n", 1)
    lines = run_bash(script, place).splitlines()
    assert lines[-1] == lines[-3]  # of the export, whose folder is between, and the workdir
    assert json.loads(run_bash(ZERO_SHOT, place).splitlines()[-1])["zero_shot"]
    assert run_python(LANGUAGES, place).startswith("['de', 'en', 'fr']")


@pytest.mark.slow
def test_a_pretrained_model(place):
    marian_folder.write(place / "opus-mt-en-de")
    assert scores_in(run_bash(IMPORT, place))[0]["sentences"] == 10
    tuned = run_bash(TUNE.replace(" \\\n", f"{FEW_STEPS} \\\n", 1), place)
    assert scores_in(tuned)[0]["sentences"] == 10
    assert (place / "runs" / "opus" / "checkpoints" / "average_00000004").exists()
    assert (place / "runs" / "opus_export" / "1" / "saved_model.pb").exists()
    assert run_python(LORA, place).splitlines()[-1].startswith("['")
    assert (place / "tuned_export" / "1" / "saved_model.pb").exists()


@pytest.mark.slow
def test_a_pretrained_model_of_many_languages(place):
    m2m100_folder.write(place / "nllb", "nllb")
    for path in (place / "pairs").glob("*.??"):
        ending = {".en": ".eng_Latn", ".de": ".deu_Latn"}[path.suffix]
        path.with_suffix(ending).write_bytes(path.read_bytes())
    run_bash(SERVE_NLLB, place)
    assert (place / "runs" / "nllb_export" / "1" / "saved_model.pb").exists()
    [scores] = scores_in(run_bash(TUNE_NLLB.replace("=val\n", f"=val{FEW_STEPS}\n", 1), place))
    assert {*scores["directions"]} == {"eng_Latn-deu_Latn", "deu_Latn-eng_Latn"}


# Other tasks -------------------------------------------------------------------------------------


example("other_tasks.md", "sentence_polarity.py")  # test_classification_binaries.py runs it
example("other_tasks.md", "wsj_parsing_small.py")  # test_parsing_binaries.py runs it
example("other_tasks.md", "multi30k_de_lm")  # test_language_model_binaries.py runs it
example("other_tasks.md", "generator.sample")  # and this
CLASSIFIER = example("other_tasks.md", "TransformerClassifier")
TAGGER = example("other_tasks.md", "layers.PostNorm")


@pytest.mark.slow
def test_other_tasks(place):
    stdout = run_python(CLASSIFIER, place)
    assert "[[Classification(label='pos', probability=" in stdout
    assert (place / "polarity" / "1" / "saved_model.pb").exists()
    stdout = run_python(TAGGER, place)
    assert float(re.findall(r"accuracy: ([\d.]+)", stdout)[-1]) > 0.9


# What the pages name -----------------------------------------------------------------------------


def test_every_example_is_run_or_listed():
    listed = {find(*key) for key in NOT_RUN_HERE}
    assert not listed & RUN
    examples = {block for block in BLOCKS if block.language != "text"}
    assert {block.language for block in examples} == {"bash", "python"}
    assert examples == listed | RUN
    for reason in NOT_RUN_HERE.values():
        assert all((ROOT / path).exists() for path in re.findall(r"tests/[\w/]+\.py", reason))


NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_a_page_breathes(path):
    """At most 1,500 words (README 1,300), 17 numbers a paragraph (README 6; benchmarks: any).

    Examples and tables do not count, nor do numbers in code spans and addresses. A code span is not
    broken over lines, so that it can be copied.
    """
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    lines = [line for line in text.splitlines() if not line.startswith("|")]
    words, most = (1_300, 6) if path.name == "README.md" else (1_500, 17)
    assert sum(len(line.split()) for line in lines) <= words
    assert not [line for line in lines if len(line) > 100]
    paragraphs = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", "\n".join(lines))
    assert not [span for p in paragraphs for span in re.findall(r"`[^`]*`", p) if "\n" in span]
    numbers = [len(NUMBER.findall(re.sub(r"`[^`]*`|\]\([^)]*\)", "", p))) for p in paragraphs]
    assert path.name == "benchmarks.md" or max(numbers) <= most


def test_the_first_screens_of_the_readme_are_not_full_of_numbers():
    assert len(NUMBER.findall(PAGES["README.md"][:3_000])) <= 25


@pytest.mark.parametrize(
    "path",
    [
        *PATHS,
        *(ROOT / f"{at}/README.md" for at in ("t2t_keras/serving", "tools/paper")),
        ROOT / ".github" / "CONTRIBUTING.md",
    ],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_the_links_of_a_page_lead_somewhere(path):
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
        file, _, heading = target.partition("#")
        linked = path.parent / file if file else path
        assert linked.exists(), target
        titles = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE) if heading else []
        anchors = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
        assert not heading or heading in anchors, target


def test_the_fields_that_the_pages_name_exist():
    fields = {
        f"{part}.{name}"
        for parts in FIELDS.values()
        for part, names in parts.items()
        for name in names
    }
    today = TEXT.replace(PAGES["changelog.md"], "")
    named = set(re.findall(r"config\.(\w+\.\w+)[=`]", today))
    named |= set(re.findall(r"`((?:data|model|train|decode|knn)\.\w+)[=`]", today))
    assert len(named) > 30
    others = {f"model.{name}" for name in ("bin", "fit", "safetensors", "save")}
    others |= {f"train.{ending}" for ending in ENDINGS}
    assert not named - fields - others


def test_the_configs_of_the_pages_exist():
    names = re.findall(r"(\w+\.py)`", TEXT) + re.findall(r"configs/(\w+\.py)", TEXT)
    tasks = ("wmt14", "multi30k", "grammar", "sentence", "imdb", "wsj")
    configs = {name for name in names if name.startswith(tasks)}
    configs |= {f"{name}.py" for name in re.findall(r"--config=(\w+)[\s`]", TEXT)}
    assert len(configs) >= 12
    assert all((ROOT / "pipelines" / "configs" / name).exists() for name in configs)


def test_the_files_of_the_pages_exist():
    names = {name.rsplit("/", 1)[-1] for name in re.findall(r"([\w/]+\.py)\b", TEXT)}
    files = {
        path.name
        for part in ("t2t_keras", "pipelines", "tests", "tools")
        for path in (ROOT / part).rglob("*.py")
    }
    assert len(names) > 15
    assert names - files == {"en_fr.py"}  # which the reader writes
