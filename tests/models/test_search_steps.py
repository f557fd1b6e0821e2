"""A `call` of a user's class that a search would not run is refused."""

import inspect

import keras
import numpy as np
import pytest

import t2t_keras as t2t
from t2t_keras.errors import InputError
from t2t_keras.models.knn import Datastore, KNNTransformer
from t2t_keras.models.search_steps import has_room, require_own_steps, step_products
from t2t_keras.serving.ctranslate2 import export_ctranslate2
from t2t_keras.tasks.shortlist import ShortlistTranslator
from tests.tasks import tiny
from tests.tasks.tiny import shortlist


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


def test_a_call_with_its_own_encode_and_step_is_searched(tmp_path):
    model = OwnAll(CONFIG)
    assert of_translator(model).model is model
    assert t2t.Ensemble([model]).members == [model]
    for use in (
        lambda: KNNTransformer(model, DATASTORE),
        lambda: ShortlistTranslator(of_translator(model), shortlist()),
    ):
        with pytest.raises(InputError, match="ignores the `step` of OwnAll: give a Transformer"):
            use()
    with pytest.raises(InputError, match="CTranslate2 has no OwnAll: give a translator of one"):
        export_ctranslate2(of_translator(model), tmp_path / "engine")


class OwnModel(keras.Model):
    """Not a `Transformer`, but it has the same methods; its layers are another model's."""

    for member in (
        *("encode", "initial_state", "step", "hidden_step", "reorder", "with_room"),
        *("max_length", "input_signature", "output_matrix", "_attentions", "_embed"),
    ):
        locals()[member] = inspect.getattr_static(t2t.Transformer, member)

    def __init__(self, model):
        super().__init__()
        self.config = model.config
        for name in PARTS:
            setattr(self, name, getattr(model, name))
        self.built = True


PARTS = "embedding", "source_embedding", "output_projection", "source_positions"
PARTS += "target_positions", "embedding_dropout", "encoder", "decoder"


class OwnSteps(OwnModel):
    def step(self, ids, state, return_attention_weights=False):
        return super().step(ids, state, return_attention_weights)


@pytest.mark.parametrize("use", [
    lambda translator: translator,
    lambda translator: ShortlistTranslator(translator, shortlist(k=9)),
    lambda translator: of_translator(t2t.Ensemble([translator.model, tiny.model(seed=3)])),
    lambda translator: of_translator(KNNTransformer(translator.model, DATASTORE)),
])  # fmt: skip
def test_a_model_with_the_methods_of_a_transformer_gets_its_searches(use):
    model = tiny.model(position_embedding="relative")
    own = OwnModel(model)
    theirs, ours = (use(of_translator(kind)).n_best(tiny.LINES) for kind in (model, own))
    assert ours == theirs


def test_fast_forms_belong_to_the_steps_that_state_them():
    model = tiny.model()
    own = OwnModel(model)
    found, expected = step_products(own), step_products(model)
    kernels = [[id(factors[0]) for factors in x["matrices"]] for x in (found, expected)]
    assert kernels[0] == kernels[1] and kernels[0]
    assert found["output_matrices"] == [model.embedding.matrix]
    assert has_room(own) and has_room(model) and has_room(t2t.TransformerLM(CONFIG))
    assert not has_room(OwnSteps(model)) and not has_room(OwnAll(CONFIG))
    own.decoder.layers[0].self_attention.step = None  # set on the layer itself
    assert not has_room(own)


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
