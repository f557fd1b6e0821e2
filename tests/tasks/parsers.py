"""Trees, sentences, and parsers of random weights."""

import keras
import numpy as np

from t2t_keras.data.tree_tokenizer import TreeTokenizer
from t2t_keras.data.treebank import parse_trees
from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.transformer import Transformer
from t2t_keras.tasks.parsing import Parser

TREES = list(
    parse_trees(
        """(S (NP (DT The) (NN dog)) (VP (VBZ sees) (NP (DT a) (NN cat))) (. .))
        (S (NP (PRP It)) (VP (VBZ works) (, ,) (ADVP (RB well))) (. .))
        (NP (NP (NN price)) (PP (IN of) (NP (CD 35) (NNS cents))) (: --))""".splitlines()
    )
)
SENTENCES = ["", "The", "It works .", 'a cat , ( which ) "sees" Zürich\'s dog -- !', "x " * 14]


def make_parser(seed=0, tags="kept", copy_words=False, **kwargs):
    """A parser with large random weights: confident and wrong."""
    tokenizer = TreeTokenizer.train(TREES, 40 if tags == "kept" else 26, tags, copy_words)
    keras.utils.set_random_seed(seed)
    fields = kwargs.pop("model", {})
    model = Transformer(
        TransformerConfig(tokenizer.vocab_size, 1, 1, 16, 16, num_heads=2, **fields)
    )
    for weight in model.weights:
        weight.assign(4 * np.random.default_rng(seed).normal(size=weight.shape))
    return Parser(model, tokenizer, **({"beam_size": 3, "max_extra_tokens": 16} | kwargs))
