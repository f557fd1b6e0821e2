"""Other people's formats: pretrained models in, CTranslate2 out.

Start with `marian.py`, which loads OPUS-MT models. `weights.py` reads files of weights.
"""
