"""Import of pretrained models: MarianMT (OPUS-MT) and CTranslate2.

Start with `marian.py`, which loads OPUS-MT models. `weights.py` reads files of weights.
"""
