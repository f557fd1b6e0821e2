"""Import of pretrained models: MarianMT (OPUS-MT), M2M-100, NLLB-200 and CTranslate2.

Start with `marian.py`, which loads OPUS-MT models; `m2m100.py` loads models of many languages. Both
read Hugging Face's format by `hugging_face.py`. `files.py` reads files and checks their fields,
`weights.py` reads files of weights.
"""
