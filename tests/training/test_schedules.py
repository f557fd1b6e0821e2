"""The learning rate of equation 3 (section 5.3), and its decay to zero."""

import keras
import numpy as np
import pytest

from t2t_keras.errors import InputError
from t2t_keras.training.schedules import InverseSquareRoot, LinearDecayToZero


def test_rate_peaks_at_6_99e_4_with_the_papers_constants():
    schedule = InverseSquareRoot(model_dim=512, warmup_steps=4000)
    rates = np.array([schedule(i) for i in range(3900, 4100)])
    assert np.argmax(rates) + 3900 == 3999  # Keras's 3999 is the paper's step 4000
    assert rates.max() == pytest.approx(6.99e-4, abs=5e-7)


@pytest.mark.parametrize("step", [1, 2, 1999, 2000, 2001, 100_000])
def test_rate_is_equation_3_from_step_1_on(step):
    expected = 2.0 * 128**-0.5 * min(step**-0.5, step * 2000**-1.5)
    rate = InverseSquareRoot(128, warmup_steps=2000, scale=2.0)(step - 1)
    assert float(rate) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "wrong", [{"model_dim": 0}, {"warmup_steps": 0}, {"warmup_steps": None}, {"scale": -1.0}]
)
def test_senseless_schedules_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        InverseSquareRoot(**({"model_dim": 512} | wrong))


def test_a_subclass_may_have_a_config_of_its_own():
    class Named(InverseSquareRoot):
        def get_config(self):
            return super().get_config() | {"label": self.label}

    assert Named(512).model_dim == 512


def test_the_last_steps_decay_linearly_to_zero():
    paper = InverseSquareRoot(512, warmup_steps=10, scale=2.0)
    schedule = LinearDecayToZero(paper, steps=100, decay_steps=20)
    schedules = keras.optimizers.schedules
    for one in (schedule, schedules.deserialize(schedules.serialize(schedule))):
        for step, part in [(0, 1), (79, 1), (80, 1), (85, 0.75), (99, 0.05), (100, 0), (150, 0)]:
            assert float(one(step)) == pytest.approx(part * float(paper(step)), rel=1e-5)
    with pytest.raises(InputError, match="decay_steps is 101"):
        LinearDecayToZero(paper, steps=100, decay_steps=101)
