import matplotlib.image
import numpy as np

from t2t_keras.analysis.curves import draw_curves

HEADER = "step,seconds,loss,perplexity,validation_loss,validation_perplexity,validation_bleu\n"


def inked(path):
    """Returns which rows of the picture hold anything coloured: curves, unlike axes and text."""
    pixels = matplotlib.image.imread(path)[..., :3]
    return np.flatnonzero(np.any(np.ptp(pixels, axis=-1) > 0.3, axis=1))


def test_a_panel_for_each_measure_with_its_curves(tmp_path):
    csv = tmp_path / "metrics.csv"
    rows = [f"{i},{i / 2},{5 - i / 100},{90 - i / 10},,,\n" for i in range(0, 300, 10)]
    csv.write_text(HEADER + "".join(rows) + "290,150,,,3.1,20,\n300,160,,,3,18,12.5\n")
    assert draw_curves(csv, tmp_path / "curves.png")
    three = matplotlib.image.imread(tmp_path / "curves.png")
    csv.write_text(HEADER + "".join(rows))
    assert draw_curves(csv, tmp_path / "fewer.png")
    two = matplotlib.image.imread(tmp_path / "fewer.png")
    assert three.shape[0] * 2 == two.shape[0] * 3
    assert three.shape[1] == two.shape[1]
    # A falling straight line inks its panel from top to bottom.
    first_panel = inked(tmp_path / "fewer.png")
    first_panel = first_panel[first_panel < two.shape[0] / 2]
    assert np.ptp(first_panel) > 0.3 * two.shape[0]


def test_nothing_to_draw_is_no_picture(tmp_path):
    csv = tmp_path / "metrics.csv"
    csv.write_text(HEADER)
    assert not draw_curves(csv, tmp_path / "curves.png")
    assert not (tmp_path / "curves.png").exists()
