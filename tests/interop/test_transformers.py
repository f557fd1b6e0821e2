"""Models of Hugging Face's own code, with random weights, translate here as they do there.

Needs the extra `transformers`: PyTorch is too large for the extra `test`.
"""

import functools
import random
import shutil

import numpy as np
import pytest
import tensorflow as tf

from pipelines.datasets.english_german.sampler import Sampler
from t2t_keras.interop.m2m100 import load_m2m100
from t2t_keras.interop.marian import load_marian
from tests.interop.hugging_face_folder import (
    change_json,
    check_logits,
    pieces_of,
    train_spm,
    write_json,
)

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="the extra 'transformers' is not installed")
transformers = pytest.importorskip("transformers", reason="the extra 'transformers' is missing")

SAMPLER = Sampler(1)
TEXT = [SAMPLER.pair() for _ in range(1000)]
CODES = {"nllb": ("eng_Latn", "deu_Latn"), "m2m100": ("en", "de"), "small100": ("en", "de")}
LAYERS = {"encoder_layers": 1, "decoder_layers": 2}
FORMS = {
    "marian": ("marian", {"dtype": "float16", "cleans": True}),
    "marian untied": ("marian", {"separate": True, "tied": False, "file": "pytorch_model.bin",
     "activation_function": "relu"}),
    "m2m100": ("m2m100", {"file": "pytorch_model.bin", "dtype": "float16", "thin": True}),
    "nllb": ("nllb", {"activation_function": "gelu"}),
    "small100": ("small100", {}),
}  # fmt: skip
LONGEST = 24
ODD = [
    "", "   ", "😀 👩‍🚀 emoji", "漢字 и кириллица العربية ไทย", "½ ﬁ … x² \u00a0 nbsp \t tab",
    "e\u0301 \u202eright to left\u202c", "▁ ▁▁ underline",
    "A man in 1999, at 12:30 (noon), paid $5.",
    "word " * 60, "x" * 150, "zero\u200dwidth\u200bjoiner \ufeff",
]  # fmt: skip
CODED = [">>deu<< A dog.", ">>fra<<A dog.", " >>deu<< A dog.", ">>xyz<< One.", ">>deu<< >>fra<< 2."]


def write_spm(lines, path, kind="unigram"):
    """Writes a SentencePiece model; returns its pieces."""
    options = {"model_type": kind, "vocab_size": 300, "hard_vocab_limit": kind == "bpe"}
    path.write_bytes(train_spm(lines, **options))
    return pieces_of(path.read_bytes())


def marian_tokenizer(raw, separate, cleans):
    sides = [
        write_spm(lines, raw / f"{name}.spm")[3:]
        for lines, name in zip(zip(*TEXT, strict=True), ("source", "target"), strict=True)
    ]
    if not separate:
        sides = [list(dict.fromkeys([">>deu<<", ">>fra<<", *sides[0], *sides[1]]))] * 2
    size = min(map(len, sides))
    for side, name in zip(sides, ("vocab", "target_vocab")[: 1 + separate], strict=False):
        tokens = ["</s>", "<unk>", *side[:size], "<pad>"]
        write_json(raw / f"{name}.json", {t: i for i, t in enumerate(tokens)})
    tokenizer = transformers.MarianTokenizer(
        *(str(raw / name) for name in ("source.spm", "target.spm", "vocab.json")),
        target_vocab_file=str(raw / "target_vocab.json") if separate else None,
        separate_vocabs=separate, source_lang="en", target_lang="de",
        clean_up_tokenization_spaces=cleans,
    )  # fmt: skip
    return tokenizer, size + 3


def m2m100_tokenizer(raw, pieces):
    """vocab.json is in another order than the SentencePiece model, and has fewer pieces."""
    from transformers.models.m2m_100.tokenization_m2m_100 import (  # noqa: PLC0415
        FAIRSEQ_LANGUAGE_CODES,
    )

    pieces = pieces[3:]
    random.Random(2).shuffle(pieces)
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *pieces[20:]]
    write_json(raw / "vocab.json", {token: i for i, token in enumerate(tokens)})
    codes = [f"__{code}__" for code in FAIRSEQ_LANGUAGE_CODES["m2m100"]]
    tokenizer = transformers.M2M100Tokenizer(
        str(raw / "vocab.json"), str(raw / "spm.model"), additional_special_tokens=codes
    )
    return tokenizer, len(tokens) + len(codes) + 8


def nllb_tokenizer(raw, pieces):
    """Neither of transformers' ways from a SentencePiece model works: the first needs a newer
    protobuf than TensorFlow, the other knows no languages."""
    from transformers.models.nllb import tokenization_nllb  # noqa: PLC0415
    from transformers.tokenization_utils_base import generate_merges  # noqa: PLC0415
    from transformers.utils import sentencepiece_model_pb2_new  # noqa: PLC0415

    tokens = ["<s>", "<pad>", "</s>", "<unk>", *pieces[3:]]
    tokens += [*tokenization_nllb.FAIRSEQ_LANGUAGE_CODES, "<mask>"]
    spm = (raw / "spm.model").read_bytes()
    proto = sentencepiece_model_pb2_new.ModelProto.FromString(spm)
    tokenizer = transformers.NllbTokenizer(
        vocab={token: i for i, token in enumerate(tokens)},
        merges=generate_merges({piece: i for i, piece in enumerate(pieces)}),
        _spm_precompiled_charsmap=proto.normalizer_spec.precompiled_charsmap,
    )
    return tokenizer, len(tokens) + 2


class Original:
    """Hugging Face's model and tokenizer of a kind, read back from a folder.

    Attributes:
        eos: int, its id of the end.
        folder: what `load_marian` or `load_m2m100` reads.
    """

    def __init__(self, kind, place, separate=False, tied=True, cleans=False, thin=False,
                 dtype="float32", file=None, **sizes):  # fmt: skip
        self.kind, raw, self.folder = kind, place / "raw", place / "hf"
        raw.mkdir()
        options = {"d_model": 16, **LAYERS, **sizes, "max_position_embeddings": 512}
        for side in ("encoder", "decoder"):
            options |= {f"{side}_attention_heads": 2, f"{side}_ffn_dim": 24}
        if kind == "marian":
            self.tokenizer, size = marian_tokenizer(raw, separate, cleans)
            self.eos, pad = 0, size - 1
            config = transformers.MarianConfig(
                vocab_size=size, decoder_vocab_size=size, scale_embedding=True, **options,
                share_encoder_decoder_embeddings=not separate, tie_word_embeddings=tied,
                pad_token_id=pad, decoder_start_token_id=pad, eos_token_id=0, bos_token_id=0,
                forced_eos_token_id=0, static_position_embeddings=True,
            )  # fmt: skip
            model_class = transformers.MarianMTModel
            generation = transformers.GenerationConfig(
                num_beams=4, max_length=64, bad_words_ids=[[pad]], forced_eos_token_id=0,
                renormalize_logits=True, pad_token_id=pad, decoder_start_token_id=pad,
                eos_token_id=0, bos_token_id=0,
            )  # fmt: skip
        else:
            lines = [line for pair in TEXT for line in pair]
            pieces = write_spm(lines, raw / "spm.model", "bpe")
            make = nllb_tokenizer if kind == "nllb" else m2m100_tokenizer
            self.tokenizer, size = make(raw, pieces)
            self.eos = 2
            config = transformers.M2M100Config(
                vocab_size=size, encoder_layerdrop=0.0, decoder_layerdrop=0.0, **options
            )
            model_class = transformers.M2M100ForConditionalGeneration
            generation = transformers.GenerationConfig(
                num_beams=4, max_length=64, pad_token_id=1, decoder_start_token_id=2,
                eos_token_id=2, bos_token_id=0,
            )  # fmt: skip
        torch.manual_seed(0)
        self.model = model_class(config)
        self.draw_weights()
        self.model.generation_config = generation
        self.model.to(getattr(torch, dtype)).save_pretrained(self.folder)
        self.tokenizer.save_pretrained(self.folder)
        if file:
            (self.folder / "model.safetensors").unlink()
            torch.save(self.model.state_dict(), self.folder / file)
        self.model = model_class.from_pretrained(self.folder, dtype=torch.float32).eval()
        self.tokenizer = type(self.tokenizer).from_pretrained(self.folder)
        if kind != "marian":
            self.write_as_released(raw, thin)

    @torch.no_grad()
    def draw_weights(self):
        """Draws weights of which translations depend on all, and lets some sentences end."""
        for weight in self.model.parameters():
            if weight.ndim == 1:
                weight.add_(torch.randn(weight.shape), alpha=0.2)
            elif weight.requires_grad:  # positions are constants
                weight.normal_(0, 0.4)
        if self.kind == "marian":
            self.model.final_logits_bias[:, :-1].normal_(0, 0.1)
            self.model.final_logits_bias[:, 0] += 8
        else:
            norm, embedding = self.model.model.decoder.layer_norm, self.model.model.shared
            embedding.weight[2] *= 2
            norm.bias += 2 * embedding.weight[2]

    def write_as_released(self, raw, thin):
        shutil.copy(raw / "spm.model", self.folder / "sentencepiece.bpe.model")
        if thin:  # as older versions saved their tokenizers
            codes = [token for token in self.tokenizer.all_special_tokens if "_" in token]
            for name in ("tokenizer.json", "added_tokens.json", "tokenizer_config.json"):
                (self.folder / name).unlink(missing_ok=True)
            write_json(self.folder / "tokenizer_config.json", {"model_max_length": 1024})
            special = {"additional_special_tokens": codes}
            write_json(self.folder / "special_tokens_map.json", special)
        if self.kind == "small100":
            path = self.folder / "tokenizer_config.json"
            change_json(path, tokenizer_class="SMALL100Tokenizer")

    def sources(self, lines, **kwargs):
        if self.kind != "marian":  # SMaLL-100's tokenizer puts the target's language first
            self.tokenizer.src_lang = CODES[self.kind][self.kind == "small100"]
        return self.tokenizer(list(lines), truncation=True, **kwargs)

    def targets(self, lines):
        """Returns lists of ids, with the language where the decoder's output has it."""
        if self.kind != "marian":
            self.tokenizer.tgt_lang = CODES[self.kind][1]
        found = self.tokenizer(text_target=list(lines), truncation=True).input_ids
        return [row[1:] for row in found] if self.kind == "small100" else found

    def rows(self, target=False):
        """Returns its id of each of our ids."""
        if self.kind != "marian":
            size = len(self.model.get_input_embeddings().weight)
            return np.array([1, 2, 3, 2, *(i for i in range(size) if i not in (2, 3))])
        separate = target and self.tokenizer.separate_vocabs
        vocabulary = self.tokenizer.target_encoder if separate else self.tokenizer.encoder
        pad, eos, unk = (vocabulary[token] for token in ("<pad>", "</s>", "<unk>"))
        others = (i for i in range(len(vocabulary)) if i not in (pad, eos, unk))
        return np.array([pad, eos, unk, pad, *others])


def languages(original, count):
    """Returns the languages of texts, string tensors [count]; none of a bilingual model."""
    codes = CODES.get(original.kind, ())
    return [tf.fill([count], code) for code in codes]


def first_ids(original, translator, count):
    codes = languages(original, count)
    return translator.languages.first_ids(*codes)[1] if codes else None


def target_ids(original, translator, lines):
    first = first_ids(original, translator, len(lines))
    given = [] if first is None else [first]
    return translator.targets.encode(list(lines), *given).ids


@pytest.mark.parametrize("form", FORMS)
def test_ids_texts_logits_and_translations_are_theirs(form, tmp_path):
    torch.set_num_threads(1)
    kind, options = FORMS[form]
    original = Original(kind, tmp_path, **options)
    translator = (load_marian if kind == "marian" else load_m2m100)(original.folder)
    check_ids_and_texts(original, translator)
    codes, expected = CODES.get(kind, ()), functools.partial(logits, original)
    check_logits(translator, original.rows(target=True), expected, codes)
    check_beam_search(original, translator)


def check_ids_and_texts(original, translator):
    lines = ODD + [pair[i % 2] for i, pair in enumerate(TEXT[:200])]
    lines += CODED if original.kind == "marian" else []
    found = translator.encode(tf.constant(lines), *languages(original, len(lines)))
    theirs, equal = original.sources(lines).input_ids, []
    for line, ids, expected in zip(lines, found.numpy(), theirs, strict=True):
        equal.append(original.rows()[ids[ids != 0]].tolist() == expected)
        # The tokenizers library, which NLLB has, makes tokens ▁ of some spaces.
        assert equal[-1] or (original.kind == "nllb" and line in ODD), line
    lines = [pair[1] for pair in TEXT[:200]]
    ids = target_ids(original, translator, lines)
    rows = original.rows(target=True)
    shown = translator.tokenizer.target.decode(ids).numpy()
    for row, ours, expected in zip(ids.numpy(), shown, original.targets(lines), strict=True):
        assert rows[row[row != 0]].tolist() == expected
        theirs = original.tokenizer.decode(expected, skip_special_tokens=True)
        assert ours.decode() == theirs.strip()


def logits(original, source, target):
    """Returns the logits [target, rows] of rows, see `check_logits`."""
    with torch.no_grad():
        ids = {"input_ids": torch.tensor([source]), "decoder_input_ids": torch.tensor([target])}
        return original.model(**ids).logits[0].numpy()


def check_beam_search(original, translator):
    translator.exhaustive = True
    translator.max_extra_tokens = translator.max_target_length = LONGEST - 1
    sources = [pair[0] for pair in TEXT[-24:]]
    batch = original.sources(sources, padding=True, return_tensors="pt")
    forced = {}
    if original.kind in ("m2m100", "nllb"):
        code = {"m2m100": "__de__", "nllb": "deu_Latn"}[original.kind]
        forced["forced_bos_token_id"] = original.tokenizer.convert_tokens_to_ids(code)
    with torch.no_grad():
        theirs = original.model.generate(
            **batch, max_length=LONGEST, num_return_sequences=4, early_stopping="never",
            length_penalty=1.0, output_scores=True, return_dict_in_generate=True, **forced,
        )  # fmt: skip
    first = first_ids(original, translator, len(sources))
    prefix = None if first is None else first[:, tf.newaxis]
    source_ids = translator.encode(tf.constant(sources), *languages(original, len(sources)))
    found = translator.search(source_ids, prefix, n_best=4)
    rows, ended = original.rows(target=True), 0
    for row in range(len(sources)):
        sequences = theirs.sequences[4 * row : 4 * row + 4, 1:].tolist()
        cut = [s[: s.index(original.eos) + 1] if original.eos in s else s for s in sequences]
        if any(len(s) >= LONGEST - 2 or original.eos not in s for s in cut):
            continue  # forced to end
        ended += 1
        ours = [rows[found.ids[row, i, : found.lengths[row, i]].numpy()].tolist() for i in range(4)]
        assert ours == cut
        scores = theirs.sequences_scores[4 * row : 4 * row + 4].numpy()
        np.testing.assert_allclose(found.scores[row].numpy(), scores, atol=1e-4)
    assert ended >= 2
