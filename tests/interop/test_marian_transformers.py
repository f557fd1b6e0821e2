"""Models that Hugging Face's own code trained and saved translate as they do there.

Needs PyTorch, transformers and sacremoses, which are no dependency: pip install torch transformers
sacremoses. PAIRS=FOLDER takes train.en and train.de of a folder instead of the built-in corpus.
"""

import io
import itertools
import os
import pathlib
import random

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from pipelines.datasets.english_german.splits import sentence_pairs
from t2t_keras.data.batching import shift_right
from t2t_keras.interop.marian import load_marian
from tests.interop import marian_folder

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

FORMS = {
    "joint swish": {},
    "separate relu": {"separate": True, "activation": "relu", "d_model": 32, "layers": (1, 3)},
    "joint half gelu": {"dtype": "float16", "activation": "gelu", "heads": 2, "cleans_up": True},
    "untied bin": {"separate": True, "tied": False, "file": "pytorch_model.bin"},
}
ODD = [
    "",
    "   ",
    ">>deu<< A dog.",
    ">>fra<<A dog.",
    " >>deu<< A dog.",
    ">>xyz<< An unknown code.",
    ">>deu<< >>fra<< Two codes.",
    "😀 👩‍🚀 emoji",
    "漢字 и кириллица العربية ไทย",
    "½ ﬁ … x² \u00a0 nbsp \t tab",
    "e\u0301 \u202eright to left\u202c",
    "▁ ▁▁ underline",
    "A man in 1999, at 12:30 (noon), paid $5.",
    "word " * 600,
    "x" * 300,
]


def pairs(count):
    folder = os.environ.get("PAIRS")
    if not folder:
        return list(itertools.islice(sentence_pairs("train"), count))
    sides = [
        (pathlib.Path(folder) / f"train.{language}").read_text().split("\n")[:count]
        for language in ("en", "de")
    ]
    return list(zip(*sides, strict=True))


def train_spm(lines, path):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=600,
        hard_vocab_limit=False,  # the built-in corpus has fewer pieces
        minloglevel=2,
    )
    path.write_bytes(model.getvalue())
    return marian_folder.pieces_of(model.getvalue())[3:]


def make_folder(folder, text, separate=False, tied=True, activation="swish", dtype="float32",
                d_model=64, layers=(2, 2), heads=4, file=None, steps=400,
                cleans_up=False):  # fmt: skip
    """Trains a model with PyTorch and saves it; returns model and tokenizer, as read back."""
    raw = folder / "raw"
    raw.mkdir(parents=True)
    sides = [
        train_spm(lines, raw / f"{name}.spm")
        for lines, name in zip(zip(*text, strict=True), ("source", "target"), strict=True)
    ]
    if not separate:
        sides = [list(dict.fromkeys([">>deu<<", ">>fra<<", *sides[0], *sides[1]]))] * 2
    size = min(map(len, sides))
    for side, name in zip(sides, ("vocab", "target_vocab")[: 1 + separate], strict=False):
        tokens = ["</s>", "<unk>", *side[:size], "<pad>"]
        marian_folder.write_json(raw / f"{name}.json", {t: i for i, t in enumerate(tokens)})
    size += 3
    tokenizer = transformers.MarianTokenizer(
        *(str(raw / name) for name in ("source.spm", "target.spm", "vocab.json")),
        target_vocab_file=str(raw / "target_vocab.json") if separate else None,
        separate_vocabs=separate,
        source_lang="en",
        target_lang="de",
        clean_up_tokenization_spaces=cleans_up,
    )
    config = transformers.MarianConfig(
        vocab_size=size, decoder_vocab_size=size, d_model=d_model,
        encoder_layers=layers[0], decoder_layers=layers[1],
        encoder_attention_heads=heads, decoder_attention_heads=heads,
        encoder_ffn_dim=2 * d_model, decoder_ffn_dim=2 * d_model,
        activation_function=activation, scale_embedding=True, max_position_embeddings=512,
        share_encoder_decoder_embeddings=not separate, tie_word_embeddings=tied,
        pad_token_id=size - 1, decoder_start_token_id=size - 1, eos_token_id=0,
        bos_token_id=0, forced_eos_token_id=0, static_position_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.MarianMTModel(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.normal_(0, 0.1)
        model.final_logits_bias[:, :-1].normal_(0, 0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    rng = random.Random(0)
    model.train()
    for _ in range(steps):
        source, target = zip(*rng.sample(text, 32), strict=True)
        batch = tokenizer(list(source), text_target=list(target), padding=True, truncation=True,
                          return_tensors="pt")  # fmt: skip
        batch["labels"][batch["labels"] == size - 1] = -100
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    model.generation_config = transformers.GenerationConfig(
        num_beams=4, max_length=128, bad_words_ids=[[size - 1]], forced_eos_token_id=0,
        renormalize_logits=True, pad_token_id=size - 1, decoder_start_token_id=size - 1,
        eos_token_id=0, bos_token_id=0,
    )  # fmt: skip
    saved = folder / "hf"
    model.to(getattr(torch, dtype)).save_pretrained(saved)
    tokenizer.save_pretrained(saved)
    if file:
        (saved / "model.safetensors").unlink()
        torch.save(model.state_dict(), saved / file)
    model = transformers.MarianMTModel.from_pretrained(saved, dtype=torch.float32).eval()
    return model, transformers.MarianTokenizer.from_pretrained(saved), saved


@pytest.fixture(scope="module")
def text():
    return pairs(4000)


@pytest.fixture(scope="module", params=FORMS)
def both(request, text, tmp_path_factory):
    """Hugging Face's model and tokenizer, and our translator of the folder."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("model")
    model, tokenizer, saved = make_folder(folder, text, **FORMS[request.param])
    print(request.param, "transformers", transformers.__version__, saved)
    return model, tokenizer, load_marian(saved)


def to_ours(theirs, rows):
    """Returns our ids of their ids, by the rows that our vocabulary takes of theirs."""
    place = {int(row): ours for ours, row in reversed(list(enumerate(rows)))}
    return [place[i] for i in theirs]


def rows_of(tokenizer, target=False):
    """Returns their id of each of our ids."""
    vocabulary = tokenizer.target_encoder if target and tokenizer.separate_vocabs else (
        tokenizer.encoder
    )  # fmt: skip
    pad, eos, unk = (vocabulary[token] for token in ("<pad>", "</s>", "<unk>"))
    return [pad, eos, unk, pad, *(i for i in range(len(vocabulary)) if i not in (pad, eos, unk))]


def test_token_ids_are_those_of_their_tokenizer(both, text):
    _, tokenizer, translator = both
    lines = ODD + [pair[i % 2] for i, pair in enumerate(text[:1000])]
    rows = rows_of(tokenizer)
    for line, ids in zip(lines, translator.encode(lines).numpy(), strict=True):
        theirs = to_ours(tokenizer(line, truncation=True).input_ids, rows)
        assert ids[ids != 0].tolist() == theirs, line


def test_target_ids_are_those_of_their_tokenizer(both, text):
    _, tokenizer, translator = both
    rows = rows_of(tokenizer, target=True)
    lines = [pair[1] for pair in text[:300]]
    for line, ids in zip(lines, translator.targets.encode(lines).ids.numpy(), strict=True):
        theirs = to_ours(tokenizer(text_target=line).input_ids, rows)
        assert ids[ids != 0].tolist() == theirs, line


def test_decoded_texts_are_theirs(both, text):
    _, tokenizer, translator = both
    lines = [pair[1] for pair in text[:300]] + [" . ".join(pair) + " ?" for pair in text[:300]]
    ids = translator.targets.encode(lines).ids
    rows = rows_of(tokenizer, target=True)
    found = translator.tokenizer.target.decode(ids).numpy()
    for row, shown in zip(ids.numpy(), found, strict=True):
        theirs = tokenizer.decode([rows[i] for i in row if i != 0], skip_special_tokens=True)
        assert shown.decode() == theirs


def test_logits_are_theirs(both, text):
    model, tokenizer, translator = both
    source, target = zip(*text[:64], strict=True)
    batch = tokenizer(list(source), text_target=list(target), padding=True, return_tensors="pt")
    with torch.no_grad():
        theirs = model(**batch).logits.numpy()
    ours_source = translator.sources.encode(list(source)).ids
    ours_target = translator.targets.encode(list(target)).ids
    ours = translator.model(
        {"source_ids": ours_source, "target_ids": shift_right(ours_target, 3)}
    ).numpy()
    rows = np.array(rows_of(tokenizer, target=True))
    columns = np.array([1, 2, *range(4, len(rows))])  # padding is banned by a bias
    real = ours_target.numpy() != 0
    difference = np.abs(ours[:, :, columns] - theirs[:, :, rows[columns]])[real].max()
    print("largest difference of logits", difference)
    assert difference < 1e-4


def test_beam_search_finds_what_generate_finds(both, text):
    model, tokenizer, translator = both
    translator.exhaustive = True
    sources = [pair[0] for pair in text[-600:]]
    rows = rows_of(tokenizer, target=True)
    ended, largest = 0, 0.0
    for begin in range(0, len(sources), 50):
        lines = sources[begin : begin + 50]
        batch = tokenizer(lines, padding=True, return_tensors="pt")
        with torch.no_grad():
            theirs = model.generate(
                **batch, num_return_sequences=4, early_stopping="never", output_scores=True,
                return_dict_in_generate=True,
            )  # fmt: skip
        found = translator.search(translator.encode(lines), n_best=4)
        for row, line in enumerate(lines):
            sequences = theirs.sequences[4 * row : 4 * row + 4, 1:].tolist()
            scores = theirs.sequences_scores[4 * row : 4 * row + 4].numpy()
            cut = [s[: s.index(0) + 1] if 0 in s else s for s in sequences]
            if any(len(s) >= 127 or 0 not in s for s in cut):
                continue  # forced to end
            ended += 1
            ours = [found.ids[row, i, : found.lengths[row, i]].numpy().tolist() for i in range(4)]
            assert ours == [to_ours(s, rows) for s in cut], line
            largest = max(largest, np.abs(found.scores[row].numpy() - scores).max())
            best = tokenizer.decode(cut[0], skip_special_tokens=True)
            text_ = translator.tokenizer.target.decode(tf.constant(ours[:1])).numpy()[0].decode()
            assert text_ == best
    print(f"{ended} of {len(sources)} sentences end; largest difference of scores {largest}")
    assert ended >= 500
    assert largest < 1e-4


def test_the_usual_stopping_rules_seldom_differ_a_translation(both, text):
    model, tokenizer, translator = both
    translator.exhaustive = False
    lines = [pair[0] for pair in text[-200:]]
    batch = tokenizer(lines, padding=True, return_tensors="pt")
    with torch.no_grad():
        theirs = tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True)
    same = sum(a == b for a, b in zip(translator(lines), theirs, strict=True))
    print(f"{same} of 200 translations equal under both default stopping rules")
    assert same >= 150
