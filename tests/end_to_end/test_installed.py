"""The package as pip installs it, outside the checkout: binaries, configs and data files."""

import configparser
import importlib
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import venv

import pytest

from pipelines import commands, config_flag
from t2t_keras.errors import InputError
from tests.end_to_end.binaries import ROOT, SMALL, write_folder
from tests.processes import run_command

SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")


def test_a_packaged_config_is_found_by_name():
    folder = ROOT / "pipelines" / "configs"
    assert config_flag.config_path("grammar_en_de") == f"{folder}/grammar_en_de.py"
    assert config_flag.config_path("table3:A1") == f"{folder}/table3.py:A1"
    for path in (f"{folder}/table3.py:A1", f"{folder}/table3.py", "/dev/null"):
        assert config_flag.config_path(path) == path


def test_an_unknown_name_lists_the_packaged_configs():
    with pytest.raises(InputError, match=r"no config 'tabel3': .* grammar_en_de, .*, table3,"):
        config_flag.config_path("tabel3:A1")


def test_every_console_script_runs_a_binary():
    scripts = SETUP["options.entry_points"]["console_scripts"].split("\n")[1:]
    for script in scripts:
        name, target = script.split(" = ")
        module, function = target.split(":")
        assert name.removeprefix("t2t-").replace("-", "_") == function
        assert callable(getattr(importlib.import_module(module), function))
        assert (ROOT / "pipelines" / f"{function}.py").exists()
    assert len(scripts) == len(commands.BINARIES)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """An environment that has the wheel, and this one's packages for its dependencies."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "-q", "-w", folder]
    # Of the working tree, but without a build folder in it.
    source = tmp_path_factory.mktemp("source")
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "t2t_keras", "pipelines"):
        os.symlink(ROOT / name, source / name)
    build = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    if build.returncode:
        pytest.skip(f"no wheel: {build.stderr[-300:]}")
    (wheel,) = folder.glob("*.whl")
    environment = folder / "environment"
    venv.create(environment, with_pip=False)
    [site] = environment.glob("lib/python*/site-packages")
    command = [sys.executable, "-m", "pip", "--python", environment / "bin" / "python"]
    subprocess.run([*command, "install", "--no-deps", "-q", wheel], check=True)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return site


def run(site, folder, command, *flags, stdin=""):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    command = site.parents[2] / "bin" / command
    return run_command(command, *flags, cwd=folder, env=environment, input=stdin)


@pytest.mark.slow
def test_the_wheel_has_all_data_files(installed):
    for folder, patterns in SETUP["options.package_data"].items():
        for pattern in patterns.split(", "):
            source = pathlib.Path(*folder.split("."))
            expected = {path.relative_to(ROOT) for path in (ROOT / source).glob(pattern)}
            assert expected
            assert expected == {
                p.relative_to(installed) for p in (installed / source).glob(pattern)
            }


@pytest.mark.slow
def test_installed_commands_find_configs_by_name_are_quiet_train_translate_and_export(
    installed, tmp_path
):
    (tmp_path / "pipelines").mkdir()  # of the user's, which would hide ours from python -m
    (tmp_path / "pipelines" / "__init__.py").write_text("raise SystemExit('the wrong one')")
    done = run(installed, tmp_path, "t2t-train", "--config=grammar_en_de", "--explain_config")
    assert "data.tfds = 'english_german'" in done.stdout
    assert re.fullmatch(r".*\] Devices: .*\n", done.stderr)
    write_folder(tmp_path)
    flags = ["--config=multi30k_en_de:forward", *SMALL[1:], "--config.train.steps=5"]
    flags += [f"--config.data.folder={tmp_path}", "--workdir=work"]
    done = run(installed, tmp_path, "t2t-train", *flags)
    assert (tmp_path / "work" / "curves.png").exists()
    assert "Trained 5 steps" in done.stderr
    flags = ["--workdir=work", "--output=export", "--signatures=serving_default"]
    run(installed, tmp_path, "t2t-export", *flags)  # verified in a process of its own
    answers = [
        run(installed, tmp_path, "t2t-translate", flag, stdin="one two\n").stdout
        for flag in ("--workdir=work", "--saved_model=export/1")
    ]
    assert answers[0] == answers[1] and answers[0].count("\n") == 1
