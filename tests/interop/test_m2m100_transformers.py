"""M2M-100, NLLB-200 and SMaLL-100 models of Hugging Face's own code translate as they do there.

Needs PyTorch and transformers, which are no dependency: pip install torch transformers.
PAIRS=FOLDER takes train.en, train.de and train.fr of a folder instead of the built-in corpus, which
has no French.
"""

import itertools
import os
import pathlib
import random
import shutil

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from pipelines.datasets.english_german.splits import sentence_pairs
from t2t_keras.data.batching import shift_right
from t2t_keras.interop.m2m100 import load_m2m100
from tests.interop.marian_folder import change_json, write_json

pytestmark = pytest.mark.slow(minutes=4)
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

NLLB_CODES = {"en": "eng_Latn", "de": "deu_Latn", "fr": "fra_Latn"}
FORMS = {
    "m2m100": {},
    "m2m100 of 2021": {"thin": True, "dtype": "float16", "file": "pytorch_model.bin"},
    "nllb": {"kind": "nllb"},
    "nllb of 2022": {"kind": "nllb", "thin": True, "layers": (1, 3), "activation": "gelu"},
    "small100": {"template": "small100"},
}
ODD = [
    "",
    "   ",
    "😀 👩‍🚀 emoji",
    "漢字 и кириллица العربية ไทย",
    "½ ﬁ … x² \u00a0 nbsp \t tab",
    "e\u0301 \u202eright to left\u202c",
    "▁ ▁▁ underline",
    "A man in 1999, at 12:30 (noon), paid $5.",
    "word " * 60,
    "x" * 150,
    "zero\u200dwidth\u200bjoiner \ufeff",
]
PARTS = [
    "😀",
    "\u200d",
    "\u0301",
    "ß",
    "漢",
    "ﬁ",
    "\u00a0",
    "\t",
    "▁",
    "½",
    "\u202e",
    "  ",
    "'",
    "Ω",
]


def texts(count):
    """Returns {language: list of str}, aligned."""
    folder = os.environ.get("PAIRS")
    if not folder:
        pairs = itertools.islice(sentence_pairs("train"), count)
        return dict(zip(("en", "de"), zip(*pairs, strict=True), strict=True))
    return {
        language: (pathlib.Path(folder) / f"train.{language}").read_text().split("\n")[:count]
        for language in ("en", "de", "fr")
    }


def nasty(text, count=1000):
    """Returns lines with odd characters at random places."""
    rng = random.Random(1)
    lines = [rng.choice(text[rng.choice([*text])]) for _ in range(count)]
    found = []
    for line in lines:
        words = line.split(" ")
        for _ in range(rng.randint(0, 3)):
            place = rng.randrange(len(words))
            words[place] = rng.choice(["{0}{1}", "{1}{0}", "{0} {1}"]).format(
                words[place], rng.choice(PARTS)
            )
        found.append(" ".join(words))
    return ODD + found


def train_spm(text, path):
    lines = [line for side in text.values() for line in side]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_prefix=str(path),
        model_type="bpe",
        vocab_size=800,
        num_threads=1,
        minloglevel=2,
    )
    path = path.with_suffix(".model")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return path, [processor.id_to_piece(i) for i in range(processor.get_piece_size())]


def m2m100_tokenizer(folder, spm, pieces):
    """vocab.json is in another order than the SentencePiece model, and has fewer pieces."""
    from transformers.models.m2m_100.tokenization_m2m_100 import (  # noqa: PLC0415
        FAIRSEQ_LANGUAGE_CODES,
    )

    pieces = pieces[3:]
    random.Random(2).shuffle(pieces)
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *pieces[20:]]
    write_json(folder / "vocab.json", {token: i for i, token in enumerate(tokens)})
    codes = [f"__{code}__" for code in FAIRSEQ_LANGUAGE_CODES["m2m100"]]
    tokenizer = transformers.M2M100Tokenizer(
        str(folder / "vocab.json"), str(spm), additional_special_tokens=codes
    )
    return tokenizer, len(tokens) + len(codes) + 8


def nllb_tokenizer(folder, spm, pieces):
    """Neither of transformers' ways from a SentencePiece model works: the first needs a newer
    protobuf than TensorFlow, the other knows no languages."""
    del folder
    from transformers.models.nllb import tokenization_nllb  # noqa: PLC0415
    from transformers.tokenization_utils_base import generate_merges  # noqa: PLC0415
    from transformers.utils import sentencepiece_model_pb2_new  # noqa: PLC0415

    tokens = ["<s>", "<pad>", "</s>", "<unk>", *pieces[3:]]
    tokens += [*tokenization_nllb.FAIRSEQ_LANGUAGE_CODES, "<mask>"]
    proto = sentencepiece_model_pb2_new.ModelProto.FromString(spm.read_bytes())
    tokenizer = transformers.NllbTokenizer(
        vocab={token: i for i, token in enumerate(tokens)},
        merges=generate_merges({piece: i for i, piece in enumerate(pieces)}),
        _spm_precompiled_charsmap=proto.normalizer_spec.precompiled_charsmap,
    )
    return tokenizer, len(tokens) + 2


class Original:
    """Hugging Face's model and tokenizer of a folder.

    Attributes:
        codes: {language of the text: code}.
        template: "m2m100" or "small100".
    """

    def __init__(self, model, tokenizer, kind, template, text):
        self.model, self.tokenizer = model, tokenizer
        self.kind, self.template = kind, template
        self.codes = {name: NLLB_CODES[name] if kind == "nllb" else name for name in text}

    def id_of(self, language):
        code = self.codes[language]
        return self.tokenizer.convert_tokens_to_ids(code if self.kind == "nllb" else f"__{code}__")

    def sources(self, lines, source, target, **kwargs):
        # SMaLL-100's own tokenizer puts the target's language before the source.
        self.tokenizer.src_lang = self.codes[target if self.template == "small100" else source]
        return self.tokenizer(list(lines), **kwargs)

    def targets(self, lines, language):
        """Returns lists of ids, with the language where the decoder's output has it."""
        self.tokenizer.tgt_lang = self.codes[language]
        found = self.tokenizer(text_target=list(lines)).input_ids
        return [row[1:] for row in found] if self.template == "small100" else found

    def forced(self, language):
        return {} if self.template == "small100" else {"forced_bos_token_id": self.id_of(language)}


def make_folder(folder, text, kind="m2m100", template="m2m100", thin=False, dtype="float32",
                layers=(2, 2), activation="relu", file=None, steps=400):  # fmt: skip
    """Trains a model with PyTorch and saves it; returns its `Original` and the folder."""
    raw = folder / "raw"
    raw.mkdir(parents=True)
    make_tokenizer = nllb_tokenizer if kind == "nllb" else m2m100_tokenizer
    spm, pieces = train_spm(text, raw / "spm")
    tokenizer, size = make_tokenizer(raw, spm, pieces)
    config = transformers.M2M100Config(
        vocab_size=size, d_model=64, encoder_layers=layers[0], decoder_layers=layers[1],
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128,
        decoder_ffn_dim=128, activation_function=activation, encoder_layerdrop=0.0,
        decoder_layerdrop=0.0, max_position_embeddings=512,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.M2M100ForConditionalGeneration(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.normal_(0, 0.1)
            elif "layer_norm" in name:
                weight.uniform_(0.7, 1.3)
    original = Original(model, tokenizer, kind, template, text)
    original.spm = sentencepiece.SentencePieceProcessor(model_file=str(spm))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    rng = random.Random(0)
    model.train()
    directions = [*itertools.permutations(text, 2)]
    for step in range(steps):
        source, target = directions[step % len(directions)]
        rows = rng.sample(range(len(text[source])), 32)
        batch = original.sources(
            [text[source][i] for i in rows], source, target, padding=True, return_tensors="pt"
        )
        labels = original.targets([text[target][i] for i in rows], target)
        longest = max(map(len, labels))
        labels = torch.tensor([row + [-100] * (longest - len(row)) for row in labels])
        loss = model(**batch, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    saved = folder / "hf"
    model.generation_config = transformers.GenerationConfig(
        max_length=200, pad_token_id=1, decoder_start_token_id=2, eos_token_id=2, bos_token_id=0,
        **({"num_beams": 5, "early_stopping": True} if kind == "m2m100" else {}),
    )  # fmt: skip
    model.to(getattr(torch, dtype)).save_pretrained(saved)
    tokenizer.save_pretrained(saved)
    shutil.copy(spm, saved / "sentencepiece.bpe.model")
    if file:
        (saved / "model.safetensors").unlink()
        torch.save(model.state_dict(), saved / file)
    model = transformers.M2M100ForConditionalGeneration.from_pretrained(saved, dtype=torch.float32)
    original.model = model.eval()
    original.tokenizer = type(tokenizer).from_pretrained(saved)
    if thin:  # as older versions saved their tokenizers
        codes = [token for token in tokenizer.all_special_tokens if "_" in token]
        for name in ("tokenizer.json", "added_tokens.json", "tokenizer_config.json"):
            (saved / name).unlink(missing_ok=True)
        write_json(saved / "tokenizer_config.json", {"model_max_length": 1024})
        write_json(saved / "special_tokens_map.json", {"additional_special_tokens": codes})
    if template == "small100":
        change_json(saved / "tokenizer_config.json", tokenizer_class="SMALL100Tokenizer")
    print(sorted(path.name for path in saved.iterdir()), "loss", loss.item())
    return original, saved


@pytest.fixture(scope="module")
def text():
    return texts(6000)


@pytest.fixture(scope="module", params=FORMS)
def both(request, text, tmp_path_factory):
    """Hugging Face's model and tokenizer, and our translator of the folder."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("model")
    original, saved = make_folder(folder, text, **FORMS[request.param])
    print(request.param, "transformers", transformers.__version__, saved)
    return original, load_m2m100(saved)


def rows_of(translator):
    """Returns their id of each of our ids."""
    size = translator.tokenizer.vocab_size - 2
    return np.array([1, 2, 3, 2, *(i for i in range(size) if i not in (2, 3))])


def to_our_ids(rows, ids):
    """Returns our ids of theirs, int32 [batch, length]."""
    ours = {int(row): i for i, row in reversed([*enumerate(rows)])}  # the end before the begin
    ours[1] = 0  # padding
    return np.vectorize(ours.get)(ids).astype(np.int32)


def to_rows(translator, ids):
    return rows_of(translator)[[i for i in ids if i != 0]].tolist()


def first_ids(translator, count, *languages):
    return translator.languages.first_ids(*(tf.fill([count], code) for code in languages))


def assert_ids_agree(original, translator, lines, found, theirs):
    """Compares ids with transformers', and NLLB's with those of SentencePiece.

    The tokenizers library, which NLLB has in transformers 5, makes tokens `▁` of some spaces, and
    loses a combining mark behind a space.
    """
    equal = 0
    for line, ids, expected in zip(lines, found, theirs, strict=True):
        ours = to_rows(translator, ids)
        equal += ours == expected
        if original.kind == "nllb":
            pieces = [i + 1 if i else 3 for i in original.spm.encode(line)]
            assert ours == [expected[0], *pieces, 2], line
        else:
            assert ours == expected, line
    print(f"{equal} of {len(lines)} lines have the ids of transformers")
    assert equal > 0.95 * len(lines)


def test_token_ids_are_those_of_their_tokenizer(both, text):
    original, translator = both
    lines = nasty(text)
    codes = (tf.fill([len(lines)], original.codes[language]) for language in ("en", "de"))
    found = translator.encode(tf.constant(lines), *codes).numpy()
    theirs = original.sources(lines, "en", "de").input_ids
    assert_ids_agree(original, translator, lines, found, theirs)


def test_target_ids_are_those_of_their_tokenizer(both, text):
    original, translator = both
    lines = nasty(text)
    _, first = first_ids(translator, len(lines), original.codes["en"], original.codes["de"])
    found = translator.targets.encode(lines, first).ids.numpy()
    assert_ids_agree(original, translator, lines, found, original.targets(lines, "de"))


def test_decoded_texts_are_theirs(both, text):
    original, translator = both
    lines = nasty(text)
    ids = translator.targets.encode(lines).ids
    shown = translator.tokenizer.target.decode(ids).numpy()
    for row, ours in zip(ids.numpy(), shown, strict=True):
        theirs = original.tokenizer.decode(to_rows(translator, row), skip_special_tokens=True)
        if original.kind == "nllb" and 2 in row:  # it keeps the spaces beside an unknown token
            assert ours.decode().split() == theirs.split()
        else:
            assert ours.decode() == theirs.strip()


def test_logits_are_theirs(both, text):
    original, translator = both
    for source, target in itertools.permutations(text, 2):
        lines, labels = text[source][:32], original.targets(text[target][:32], target)
        batch = original.sources(lines, source, target, padding=True, return_tensors="pt")
        longest = max(map(len, labels))
        labels = torch.tensor([row + [-100] * (longest - len(row)) for row in labels])
        with torch.no_grad():
            theirs = original.model(**batch, labels=labels).logits.numpy()
        codes = original.codes[source], original.codes[target]
        _, first = first_ids(translator, 32, *codes)
        source_ids = translator.encode(tf.constant(lines), *(tf.fill([32], x) for x in codes))
        target_ids = translator.targets.encode(list(text[target][:32]), first).ids
        ours = translator.model(
            {"source_ids": source_ids, "target_ids": shift_right(target_ids, 3)}
        ).numpy()
        rows = rows_of(translator)
        columns = np.array([1, 2, *range(4, len(rows))])
        real = target_ids.numpy() != 0
        difference = np.abs(ours[:, :, columns] - theirs[:, :, rows[columns]])[real].max()
        print(source, target, "largest difference of logits", difference)
        assert difference < 1e-4


def test_beam_search_finds_what_generate_finds(both, text):
    original, translator = both
    translator.exhaustive, translator.beam_size = True, 4
    translator.targets.limit = translator.max_extra_tokens = translator.max_target_length = 63
    ended, all_, differ, largest = 0, 0, 0, 0.0
    rows = rows_of(translator)
    for source, target in itertools.permutations(text, 2):
        codes = original.codes[source], original.codes[target]
        lines = text[source][-960 // (len(text) * (len(text) - 1)) - 1 :]
        for begin in range(0, len(lines), 50):
            part = list(lines[begin : begin + 50])
            batch = original.sources(part, source, target, padding=True, return_tensors="pt")
            with torch.no_grad():
                theirs = original.model.generate(
                    **batch, num_beams=4, num_return_sequences=4, early_stopping="never",
                    length_penalty=1.0, max_length=64, output_scores=True,
                    return_dict_in_generate=True, **original.forced(target),
                )  # fmt: skip
            # Both search from equal ids, whatever the tokenizers make of a text.
            source_ids = tf.constant(to_our_ids(rows, batch.input_ids.numpy()))
            _, first = first_ids(translator, len(part), *codes)
            prefix = None if first is None else first[:, tf.newaxis]
            found = translator.search(source_ids, prefix, n_best=4)
            for row in range(len(part)):
                all_ += 1
                sequences = theirs.sequences[4 * row : 4 * row + 4, 1:].tolist()
                scores = theirs.sequences_scores[4 * row : 4 * row + 4].numpy()
                cut = [s[: s.index(2) + 1] if 2 in s else s for s in sequences]
                if any(len(s) >= 63 or 2 not in s for s in cut):
                    continue  # it was cut
                ended += 1
                ours = [
                    rows[found.ids[row, i, : found.lengths[row, i]].numpy()].tolist()
                    for i in range(4)
                ]
                differ += ours != cut
                largest = max(largest, np.abs(found.scores[row].numpy() - scores).max())
    print(f"{ended} of {all_} sentences end; {differ} differ; scores by up to {largest}")
    assert ended >= 500
    assert largest < 1e-4
    assert differ == 0
