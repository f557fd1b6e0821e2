"""Table 3's sweep: which workdirs count as trained."""

import pytest
from sweep import measured, row_config

from pipelines.configs import grammar_en_de
from pipelines.workdir import Workdir
from t2t_keras.errors import InputError

METRICS = "step,validation_perplexity,validation_bleu\n"


def config(row, size_factor=0.25):
    return row_config(grammar_en_de.get_config(), row, 100, size_factor, layer_factor=0.5)


@pytest.mark.parametrize("row", ["base", "B1", "E", "big"])
def test_a_row_is_measured_from_the_workdir_of_its_training(tmp_path, row):
    assert measured(tmp_path / row, config(row)) is None
    Workdir(tmp_path / row).save_config(config(row))
    assert measured(tmp_path / row, config(row)) is None
    metrics = tmp_path / row / "metrics.csv"
    metrics.write_text(METRICS + "50,9.5,1.5\n100,,\n")
    assert measured(tmp_path / row, config(row)) is None
    steps = config(row).train.steps
    metrics.write_text(METRICS + f"50,9.5,1.5\n{steps},4.25,20.5\n")
    assert measured(tmp_path / row, config(row)) == (4.25, 20.5)


def test_a_row_of_another_scale_is_refused(tmp_path):
    Workdir(tmp_path / "base").save_config(config("base"))
    with pytest.raises(InputError, match="belongs to a sweep with another scale or corpus"):
        measured(tmp_path / "base", config("base", size_factor=0.5))
