"""A `call` of a user's class that a search would not run is refused."""

import numpy as np
import pytest

import t2t_keras as t2t
from t2t_keras.errors import InputError
from t2t_keras.models.knn import Datastore, KNNTransformer
from t2t_keras.models.search_steps import require_own_steps
from t2t_keras.tasks.shortlist import ShortlistTranslator
from tests.tasks import tiny
from tests.tasks.test_shortlist import shortlist


class OwnCall(t2t.Transformer):
    def call(self, inputs, training=None, **options):
        return -super().call(inputs, training=training, **options)


class OwnCallAndStep(OwnCall):
    def step(self, ids, state, return_attention_weights=False):
        logits, *others = super().step(ids, state, return_attention_weights)
        return -logits, *others


class OwnAll(OwnCallAndStep):
    def encode(self, source_ids):
        return super().encode(source_ids)

    def call(self, inputs, training=None, **options):
        return super().call(inputs, training=training, **options)

    def step(self, ids, state, return_attention_weights=False):
        return super().step(ids, state, return_attention_weights)


class OwnAttention(t2t.layers.MultiHeadSelfAttention):
    def call(self, *arguments, **options):
        return super().call(*arguments, **options)


CONFIG = tiny.model().config
DATASTORE = Datastore(
    [np.array([5, 1])], np.array([1]), np.zeros([1, CONFIG.model_dim]), np.array([1])
)


def of_translator(model):
    return t2t.Translator(model, tiny.tokenizer())


def replaced(model):
    tiny.translator().model = model


@pytest.mark.parametrize("kind", [OwnCall, OwnCallAndStep])
@pytest.mark.parametrize("use", [
    of_translator,
    replaced,
    lambda model: t2t.Ensemble([tiny.model(), model]),
    lambda model: KNNTransformer(model, DATASTORE),
])  # fmt: skip
def test_a_call_without_encode_and_step_is_refused(kind, use):
    with pytest.raises(InputError, match=rf"{kind.__name__} has a `call` of its own.*`encode` as"):
        use(kind(CONFIG))


def test_a_call_with_its_own_encode_and_step_is_searched():
    model = OwnAll(CONFIG)
    assert of_translator(model).model is model
    assert t2t.Ensemble([model]).members == [model]
    for use in (
        lambda: KNNTransformer(model, DATASTORE),
        lambda: ShortlistTranslator(of_translator(model), shortlist()),
    ):
        with pytest.raises(InputError, match="not by the `step` of OwnAll: give a Transformer"):
            use()


@pytest.mark.parametrize(("make", "name", "value"), [
    (lambda: t2t.Ensemble([tiny.model()]), "mean", "log_probabilities"),
    (lambda: t2t.Ensemble([tiny.model()]), "members", []),
    (lambda: KNNTransformer(tiny.model(), DATASTORE), "temperature", 2.0),
])  # fmt: skip
def test_settings_of_combined_models_are_fixed(make, name, value):
    with pytest.raises(InputError, match=f"^{name} of a .* is fixed: make another"):
        setattr(make(), name, value)


def test_a_layer_whose_call_alone_is_its_own_is_refused():
    model = tiny.model()
    attention = model.decoder.layers[0].self_attention
    attention.__class__ = OwnAttention
    with pytest.raises(InputError, match=r"OwnAttention has a `call` of its own.*`step` as well"):
        require_own_steps(model)
