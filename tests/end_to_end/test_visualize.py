"""Attention of a trained model as files: pictures, a page, statistics, alignments."""

import json

import matplotlib.image
import numpy as np
import pytest

from tests.end_to_end.binaries import refused, run

PICTURES = ("figure3", "figure4", "figure5", "matrices_encoder", "matrices_decoder")
PICTURES += ("matrices_cross",)


@pytest.mark.slow
def test_a_sentence_a_split_and_two_files(trained, corpus_folder, tmp_path):
    folder = tmp_path / "attention"
    stdout, _ = run(
        "visualize",
        f"--workdir={trained}",
        "--sentence=one two",
        "--translation=eins zwei",
        "--split=validation",  # named "val" in the corpus
        f"--source={corpus_folder}/test.en",
        f"--reference={corpus_folder}/test.de",
        f"--output={folder}",
    )
    names = ["attention.html", "heads.json", "alignment.txt"]
    assert stdout.splitlines() == [str(folder / name) for name in names]
    for name in PICTURES:
        assert np.ptp(matplotlib.image.imread(folder / f"{name}.png")[..., :3]) > 0.5
        assert "</svg>" in (folder / f"{name}.svg").read_text()
    page = (folder / "attention.html").read_text()
    data = json.loads(page.split('type="application/json">')[1].split("</script>")[0])
    assert (data["model"], data["sentence"]) == (str(trained), "one two")
    assert [one["title"] for one in data["maps"]] == [
        "encoder self-attention",
        "decoder self-attention",
        "cross-attention",
    ]
    assert data["maps"][2]["target"][-1] == "</s>"

    heads = json.loads((folder / "heads.json").read_text())
    assert heads.pop("sentences") == 20
    for kind, statistics in heads.items():
        found = {name: np.array(values) for name, values in statistics.items()}
        assert all(values.shape == (1, 2) for values in found.values())  # layers, heads
        assert np.all(found["previous"] + found["same"] + found["next"] <= 1.0001)
        assert kind != "decoder" or np.all(found["next"] == 0)

    lines = (folder / "alignment.txt").read_text().splitlines()
    assert len(lines) == 10
    german = (corpus_folder / "test.de").read_text().splitlines()
    for line, translation in zip(lines, german, strict=True):
        targets = sorted(int(pair.split("-")[1]) for pair in line.split())
        assert targets == list(range(len(translation.split())))


@pytest.mark.parametrize(("flags", "message"), [
    ([], "nothing to show: give --sentence, --split, or --source and --reference"),
    (["--sentence=one two", "--checkpoint=a,b"], "There is no checkpoint a,b: give one of"),
    (["--sentence=one two", "--ensemble_mean=logits"], "Unknown command line flag 'ensemble_mean'"),
    (["--sentence=one two", "--word=three"], "--word is 'three': give one of the pieces"),
    (["--sentence=one two", "--layer=2"], "--layer is 2: give 1 to 1, a layer of the encoder"),
    (["--split=test", "--word=one"], "--word is for --sentence: give it too, or leave --word out"),
    (["--sentence=one two", "--sentences=9"], "--sentences is for --split: give it too, or leave"),
    (["--split=test", "--beam_size=2"], "--beam_size is for --sentence: give it too, or leave"),
    (["--split=test", "--align_layer=1"], "--align_layer is for --source: give it too, or leave"),
])  # fmt: skip
def test_flags_without_a_picture_are_refused(trained, tmp_path, flags, message):
    found = refused("visualize", f"--workdir={trained}", f"--output={tmp_path}", *flags)
    assert found.startswith(f"error: {message}")
