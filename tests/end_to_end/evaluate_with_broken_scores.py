"""pipelines.evaluate where Japanese cannot be tokenized, and the scoring fails where it can."""

import runpy

import sacrebleu
from sacrebleu.tokenizers import tokenizer_ja_mecab


def fail(*_):
    raise RuntimeError("broken score")


tokenizer_ja_mecab.MeCab = None
sacrebleu.BLEU.corpus_score = fail
runpy.run_module("pipelines.evaluate", run_name="__main__", alter_sys=True)
