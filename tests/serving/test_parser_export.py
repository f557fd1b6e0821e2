"""An exported parser answers as the live one does, and refuses what is no batch of sentences."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.serving import export_saved_model
from tests.serving.session import Session
from tests.tasks.test_parsing import SENTENCES, make_parser

pytestmark = pytest.mark.slow


def test_an_exported_parser_answers_as_the_live_one(tmp_path):
    parser = make_parser()
    export_saved_model(parser, tmp_path / "1", verify=False)
    with Session(str(tmp_path / "1")) as session:
        best = session("serving_default", text=[text.encode() for text in SENTENCES])
        assert [tree.decode() for tree in best["tree"]] == parser(SENTENCES)
        beams = session("n_best", text=[text.encode() for text in SENTENCES])
        for row, parses in enumerate(parser.n_best(SENTENCES)):
            assert [tree.decode() for tree in beams["trees"][row]] == [p.text for p in parses]
            np.testing.assert_allclose(beams["scores"][row], [p.score for p in parses], rtol=1e-4)
        for signature in ("serving_default", "n_best"):
            for text in ("It works .", [["It works ."]], np.zeros([0, 3], object)):
                with pytest.raises(tf.errors.InvalidArgumentError, match=r"text has shape .* give"):
                    session(signature, text=text)
            assert {len(x) for x in session(signature, text=np.array([], object)).values()} == {0}
