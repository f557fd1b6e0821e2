"""A mistake on the command line is one line that says what to do next, and exit code 1."""

import os
import re
import signal
import subprocess
import sys

import pytest

import t2t_keras as t2t
from pipelines import app, config_flag
from pipelines.configs import grammar_en_de
from pipelines.workdir import Workdir
from t2t_keras.errors import InputError
from t2t_keras.interop.pretrained import load_pretrained
from tests.end_to_end.binaries import ROOT, SMALL, refused, run_process
from tests.processes import run_command, run_python

MISTAKES = [
    ("train", [*SMALL, "--config.model.num_heads=5"], "num_heads is 5"),
    ("train", [*SMALL, "--config.train.stepz=3"],
     "--config.train.stepz: config.train has no field 'stepz': give steps."),
    ("train", [*SMALL, "--config.trian.steps=3"], "config has no field 'trian': give train."),
    ("train", [*SMALL, "--config.train.steps.x=3"], "config.train.steps has no field 'x': leave"),
    ("train", [*SMALL, "--config.train.steps=x"], "steps=x: give a whole number from 1 to"),
    ("train", [*SMALL, "--config.data.folder=x"], "--config.data.folder is given twice: give it"),
    ("translate", ["--workdir=x", "--line_buffered", "--batch_size=8"], "--batch_size=8 is for"),
    ("data_service", ["--port=70000"], "--port=70000"),
    ("evaluate", ["--baseline=LICENSE", "--baseline", "setup.cfg"], "--baseline is given twice"),
    ("evaluate", ["--lowercase", "--nolowercase"], "--lowercase is given twice: give it once."),
    ("translate", ["--checkpoint=a", "--checkpoint=b"], "give it once, with commas between"),
    ("train", [*SMALL, "--config.train.parallel_micro_batches=3"],
     "parallel_micro_batches is 3, more than train.micro_batches 1"),
    ("train", [*SMALL, "--config.model.vocab_size=9000"], "9000"),
    ("train", [*SMALL, "--config.data.errors=ignore"], "'ignore'"),
    ("train", ["--workdir=x"], "--config is missing: Config of the experiment: the name"),
    ("train", [SMALL[0]], "--workdir"),
    ("train", ["--config=nowhere/mine.py", "--workdir=x"], "there is no file nowhere/mine.py"),
    ("train", ["--config=workdir:nowhere", "--workdir=x"],
     "--config=workdir:nowhere: there is no folder nowhere: give the --workdir that pipelines"),
    ("prepare", [*SMALL, "--config.model.num_heads=5"], "num_heads is 5"),
    ("translate", [], "--saved_model"),
    ("translate", ["--saved_model=nowhere"], "give the numbered folder that pipelines.export"),
    ("translate", ["--workdir=x", "--output=x.de.gz"], "leave .gz out"),
    ("translate", ["--saved_model=x", "--checkpoint=a,b"], "--checkpoint=a,b is for --work"),
    ("translate", ["--sample", "--terms=setup.cfg"], "--terms and --sample do not combine"),
    ("translate", ["--workdir=x", "--top_p=0.9"], "--top_p=0.9 is for --sample"),
    ("translate", ["--workdir=x", "--nofuzzy"], "--fuzzy is for a catalog of messages"),
    ("translate", ["--sample", "--temperature=0"], "--temperature=0: give a number from"),
    ("translate", ["--workdir=x", "--apache_beam="], "give --input and --output"),
    ("evaluate", ["--source=setup.cfg", "--workdir=x"], "--reference"),
    ("evaluate", ["--workdir=x", "--tokenize=foo"], "13a"),
    ("evaluate", ["--workdir=x", "--output=nowhere/x.de"], "/nowhere; make it"),
    ("evaluate", ["--workdir=x", "--length_penalty=nan"], "=nan: give a number from -10 to 10"),
    ("evaluate", ["--workdir=x", "--beam_size=0"], "=0: give a whole number from 1 to 4,096"),
    ("export", ["--workdir=x"], "--output is missing: The model's folder; the export becomes"),
    ("export", ["--workdir=x", "--output=y", "--shortlist=0"],
     "--shortlist is 0: give a whole number of at least 1"),
    ("export", ["--workdir=x", "--output=y", "--lines=/dev/null"],
     "--lines=/dev/null is empty: give a file with a source on each line"),
    ("data_service", ["--port=0", "--dispatcher=first.example:5050"], "give --host"),
    ("prepare", ["--config=grammar_en_de", "--workdir="], "--workdir=: the path is empty"),
    ("average", ["--workdir=~no-such-user/x"], "there is no user 'no-such-user'"),
    ("export", ["--workdir=x", "--output="], "--output=: the path is empty"),
    ("export", ["--workdir=x", "--output=y", "--lines="], "--lines=: the path is empty"),
    ("visualize", ["--workdir=x", "--output=setup.cfg"], "it is a file: give a folder"),
    ("evaluate", ["--workdir=gs://b/x"], "gs://b/x is an address"),
    ("evaluate", ["--workdir=x", "--checkpoint=a,,b"], "the path is empty"),
    ("evaluate", ["--workdir=x", "--config.data.folder="], "--config.data.folder is empty"),
    ("evaluate", ["--workdir=x", "--baseline="], "--baseline=: the path is empty"),
    ("translate", ["--workdir=x", "--input=tests"], "--input=tests: it is a folder: give a f"),
    ("translate", ["--workdir=x", "--terms=no.tsv"], "--terms=no.tsv: there is no such file"),
    ("translate", ["--workdir=x", "--input=setup.cfg", "--output=./setup.cfg"],
     "--output=./setup.cfg is the file of --input, which it would replace: give another file"),
    ("translate", ["--saved_model=setup.cfg"], "--saved_model=setup.cfg: it is a file: give"),
]  # fmt: skip


@pytest.mark.parametrize(("binary", "arguments", "message"), MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_1(binary, arguments, message, corpus_folder, tmp_path):
    if set(SMALL) <= set(arguments):
        folders = [f"--workdir={tmp_path}/work", f"--config.data.folder={corpus_folder}"]
        arguments = [*arguments, *folders]
    assert message in refused(binary, *arguments)


def test_the_command_line_overrides_a_file_of_flags(tmp_path):
    (tmp_path / "flags").write_text("--beam_size=4\n--checkpoint=a\n")
    flags = [f"--flagfile={tmp_path}/flags", "--beam_size=5", "--checkpoint=b", "--workdir=nowhere"]
    assert "twice" not in (error := refused("translate", *flags)) and "nowhere" in error


@pytest.mark.parametrize(("content", "message"), [
    ("x = null", "line 1: name 'null' is not defined: fix"),
    ("x = 1\ndef f(:", "line 2: invalid syntax"),
    ("def get_config():\n    return {}['x']", "line 2: 'x': fix"),
    ("def get_config():\n    return {}", r"get_config\(\) returns a dict: return a ConfigDict"),
    ("", "no attribute 'get_config': fix"),
])  # fmt: skip
def test_a_config_that_fails_is_named_with_its_line(tmp_path, content, message):
    (tmp_path / "mine.py").write_text(content)
    with pytest.raises(InputError, match=rf"^{tmp_path}/mine\.py.*{message}"):
        config_flag._Config().parse(f"{tmp_path}/mine.py")


def test_the_config_of_a_run_is_a_config(trained, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train"])
    parsed = config_flag._Config().parse(f"{trained}/config.json")
    assert parsed.to_dict() == Workdir(trained).load_config().to_dict()


def test_a_process_ends_with_the_line_and_the_code():
    _, stderr = run_process("translate", "--saved_model=/nowhere/1", code=1)
    assert "error: --saved_model=/nowhere/1" in stderr and "Traceback" not in stderr


@pytest.mark.parametrize(("binary", "flags", "message"), [
    ("evaluate", ["--knn_interpolation=0.1"], "--knn_interpolation is for kNN-MT"),
    ("evaluate", ["--split=test", "--config.data.test_split=val"],  # which override the run's
     "error: --split=test may be the corpus's own split 'test' or 'val', which data.test_sp"),
    ("evaluate", [f"--baseline={ROOT}/LICENSE"],
     "and the references 10: give translations of the same lines"),
    ("evaluate", ["--target_language=fr"], "give both --source_language and --target_language"),
    ("translate", ["--source_language=en", "--target_language=de"],
     "source_language is 'en', and this model translates"),
    ("translate", ["--apache_beam=", "--input=setup.cfg", "--output=out", "--parallel_batches=2"],
     "know neither --parallel_batches nor"),
    ("translate", [f"--input={ROOT}/LICENSE", "--line_buffered", "--output=out"],
     "appears when it is complete"),
])  # fmt: skip
def test_flags_that_do_not_fit_a_run_are_refused(trained, binary, flags, message):
    assert message in refused(binary, f"--workdir={trained}", *flags)


@pytest.mark.parametrize(("given", "command"), [
    ("runs/opus-mt-en-fr", "hf download Helsinki-NLP/opus-mt-en-fr --local-dir runs/opus-mt-e"),
    ("Someone/model", "hf download Someone/model --local-dir Someone/model"),
    ("model", "hf download OWNER/model --local-dir model"),
])  # fmt: skip
def test_a_missing_pretrained_model_comes_with_the_command_that_downloads_it(given, command):
    with pytest.raises(InputError, match=f"there is no such folder; to download .*: {command}"):
        load_pretrained(given)


@pytest.mark.parametrize(("file", "message"), [
    ("model.npz", "a model in Marian's own format: convert it by ct2-marian-converter"),
    ("adapter_config.json", "a PEFT adapter without its base model: merge it"),
    ("dict.en.txt", "a checkpoint of fairseq: convert it by ct2-fairseq-converter"),
    ("model_step_100.pt", "of OpenNMT-py: convert it by ct2-opennmt-py-converter"),
    ("checkpoint", "a checkpoint of TensorFlow: convert it by ct2-opennmt-tf-converter"),
    ("encoder_model.onnx", "a model in the format ONNX: get it in its original"),
    ("opus.gguf", "a model in the format GGUF"),
    ("predictor.json", "a workdir or saved predictor of this library: use it as it is"),
    ("saved_model.pb", "a SavedModel: translate with it by --saved_model"),
    ("opus.zip", "an archive: unpack it first"),
    ("config.json.incomplete", "is the part of a file: start its download again"),
    ("model/config.json", "models are in its folders model: give one of them"),
    ("README.md", "to download a model from Hugging Face"),
])  # fmt: skip
def test_a_folder_of_another_format_is_refused_by_its_name(file, message, tmp_path):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("")
    with pytest.raises(InputError, match=f"has neither config.json .*{message}"):
        load_pretrained(tmp_path)


@pytest.mark.parametrize(("file", "message"), [
    ("", "the folder '.*missing' does not exist"),
    ("missing", "the folder '.*missing' is a file"),
    ("missing/saved_model.pb", "it is an export, which pipelines.translate --saved_model"),
    ("missing/tokenizer_config.json", "import it by pipelines.import_model"),
    ("missing/run/predictor.json", "give one of its folders, run"),
])  # fmt: skip
def test_a_folder_that_is_no_predictor_says_what_it_is(file, message, tmp_path):
    if file:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("")
    with pytest.raises(InputError, match=message):
        t2t.load(tmp_path / "missing")


def test_a_workdir_that_is_missing_or_empty_says_which_commands_make_one(tmp_path):
    with pytest.raises(InputError, match=r"there is no folder .*nowhere: give .* pipelines.train"):
        Workdir(tmp_path / "nowhere").load_config()
    with pytest.raises(InputError, match=r"holds no config.json: give .* pipelines.import_model"):
        Workdir(tmp_path).load_config()


def test_a_workdir_is_cleaned_of_its_own_files_alone(tmp_path):
    users = ["notes.2024.tmp", "sub/thesis.v2.3draft.tmp", "checkpoints/a.1.tmp", "sub/b.1.t2t.tmp"]
    ours = ["config.json.12.t2t.tmp", "vocabulary/tokenizer.json.7.t2t.tmp"]
    (tmp_path / "chunk.7.tmp").mkdir()
    (tmp_path / "checkpoints" / ".mine.unfinished").mkdir(parents=True)
    for name in (*users, *ours):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    workdir = Workdir(tmp_path)
    with workdir.lock():  # not a run: nothing is removed
        assert all((tmp_path / name).exists() for name in (*users, *ours))
        workdir.save_config(grammar_en_de.get_config())
    with workdir.lock():
        workdir.save_config(grammar_en_de.get_config())
        assert all((tmp_path / name).exists() for name in users)
        assert not any((tmp_path / name).exists() for name in ours)
        assert (tmp_path / "checkpoints" / ".mine.unfinished").exists()


def test_the_config_of_another_program_is_not_overwritten(tmp_path):
    (tmp_path / "config.json").write_text('{"model": "mine"}')
    with pytest.raises(InputError, match="is not the config of a run"), Workdir(tmp_path).lock():
        pass
    assert (tmp_path / "config.json").read_text() == '{"model": "mine"}'
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    with pytest.raises(InputError, match=f"one of its folders: .*{tmp_path.name}"):
        Workdir(tmp_path.parent).load_config()


def test_a_closed_standard_stream_is_an_error(monkeypatch):
    for name, check_path in (("stdin", app.check_input), ("stdout", app.check_output)):
        monkeypatch.setattr(sys, name, None)
        with pytest.raises(InputError, match="is closed: give a file as --"):
            check_path(None)


def importing_from(folder):
    """Returns the environment of a process that imports modules from a folder and the checkout."""
    return {"PATH": os.environ["PATH"], "PYTHONPATH": f"{folder}:{ROOT}"}


@pytest.mark.parametrize(("shell", "printed"), [
    # a name in UTF-8, whatever the locale
    (
        "LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 {} --protected_pattern=rün",
        r"[3-9] \['--\w+=r\\xfcn'\] <.* False",
    ),
    # no other file takes the place of a closed stream
    ("{} <&- 2>&-", r"[3-9] \[\] None False"),
])  # fmt: skip
def test_a_command_prepares_its_process_before_the_imports(shell, printed, tmp_path):
    stub = tmp_path / "tensorflow_text.py"  # the first import
    stub.write_text(
        "import os, sys\n"
        "print(os.open('.', 0), ascii(sys.argv[1:]), sys.stdin, sys.stderr is None)\n"
        "raise SystemExit"
    )
    command = shell.format(f"{sys.executable} -m pipelines.translate")
    done = run_command("bash", "-c", command, cwd=ROOT, env=importing_from(tmp_path))
    assert re.fullmatch(printed, done.stdout.strip())


def test_a_program_of_a_user_that_imports_the_commands_gets_the_whole_library(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text(
        "import pipelines.library as x; print(x.deferred)"
    )
    (tmp_path / "mine" / "__main__.py").touch()
    assert run_python("-m", "mine", env=importing_from(tmp_path)).stdout == "[]\n"


def test_an_interrupt_during_the_imports_is_no_traceback(tmp_path):
    stub = "import time; print('imports', flush=True); time.sleep(60)"
    (tmp_path / "tensorflow_text.py").write_text(stub)
    process = subprocess.Popen(
        [sys.executable, "-m", "pipelines.translate"],
        cwd=ROOT,
        env=importing_from(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    assert process.stdout.readline() == b"imports\n"
    process.send_signal(signal.SIGINT)
    assert (process.communicate()[1], process.returncode) == (b"", -signal.SIGINT)


def test_a_missing_checkpoint_lists_those_that_there_are(tmp_path):
    workdir = Workdir(tmp_path)
    workdir.save_config(grammar_en_de.get_config())
    for name in ("step_00000010", "step_00000020"):
        (workdir.checkpoints / name).mkdir(parents=True)
    missing = workdir.checkpoints / "step_00000015"
    with pytest.raises(InputError, match=r"step_00000015: .* step_00000010, step_00000020"):
        workdir.load_predictor(missing)
    with pytest.raises(InputError, match=r"no checkpoint elsewhere/step_1: give the folder of one"):
        workdir.load_predictor("elsewhere/step_1")
