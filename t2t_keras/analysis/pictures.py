"""Pictures as files, written whole or not at all."""

import io
import os

from t2t_keras.data.files import write_file


def save_figure(figure, path, dpi=120):
    """Writes a matplotlib figure in the format that the path's ending names, such as .png or .svg.

    Args:
        figure: `matplotlib.figure.Figure`.
        path: the file.
        dpi: dots per inch of formats that have them.
    """
    path = os.fspath(path)
    content = io.BytesIO()
    figure.savefig(content, format=path.rsplit(".", 1)[-1], dpi=dpi)
    write_file(path, content.getvalue())
