"""Import of pretrained models: MarianMT (OPUS-MT) and CTranslate2.

Start with `marian.py`, which loads OPUS-MT models. `files.py` reads files and checks their fields,
`weights.py` reads files of weights.
"""
