"""What small folders in Hugging Face's format share: files, random weights, and what they compute.

`draw_layers` draws the layers of a model, and `logits` computes in float64 what it says.
"""

import io
import json

import numpy as np
import sentencepiece
import tensorflow as tf

from t2t_keras.data.batching import shift_right
from tests import reference
from tests.tasks import tiny

DIM, INNER, HEADS = 16, 24, 2
LAYERS = {"encoder": 1, "decoder": 2}
LINES = [*tiny.LINES, "A train, a dog and a man.", "Der Hund sieht, ob der Mann kommt!"] * 4
TEXTS = [
    "The old man sees a small dog.", ">>deu<< Does the train know?", "A",
    "😀 unknown, and ê漢字 >>xyz<< __de__ deu_Latn", "Der Hund sieht, ob der Mann kommt!",
]  # fmt: skip


def write_json(path, fields):
    path.write_text(json.dumps(fields), encoding="utf-8")


def change_json(path, **changes):
    """Sets fields of a JSON file; None removes one."""
    fields = json.loads(path.read_text()) if path.exists() else {}
    fields = {name: value for name, value in (fields | changes).items() if value is not None}
    write_json(path, fields)


def safetensors(arrays):
    """Returns the bytes of a safetensors file of {name: array}."""
    names = {"float32": "F32", "float16": "F16"}
    header, content = {}, b""
    for name, array in arrays.items():
        end = len(content) + array.nbytes
        header[name] = {
            "dtype": names[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [len(content), end],
        }
        content += array.tobytes()
    packed = json.dumps(header).encode()
    return len(packed).to_bytes(8, "little") + packed + content


def train_spm(lines, **options):
    """Returns a SentencePiece model, bytes, the same at every run."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, num_threads=1, minloglevel=2, **options
    )
    return model.getvalue()


def pieces_of(model):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(i) for i in range(processor.get_piece_size())]


def sizes_of_config(layerdrop):
    """Returns the fields of config.json that say the sizes of the layers."""
    fields = {"attention_heads": HEADS, "ffn_dim": INNER, "layerdrop": layerdrop}
    sides = {f"{side}_{name}": x for side in LAYERS for name, x in fields.items()}
    return sides | {f"{side}_layers": count for side, count in LAYERS.items()} | {"d_model": DIM}


def draw_norm(rng, name):
    return {f"{name}.weight": rng.uniform(0.5, 1.5, [DIM]), f"{name}.bias": rng.normal(0, 0.2, DIM)}


def draw_layers(rng):
    """Returns the tensors of all layers, {name: array}."""
    arrays = {}
    for side, layer in ((side, i) for side, count in LAYERS.items() for i in range(count)):
        name = f"model.{side}.layers.{layer}"
        shapes = {"fc1": (INNER, DIM), "fc2": (DIM, INNER)}
        for attention in ("self_attn", "encoder_attn")[: 1 + (side == "decoder")]:
            shapes |= {f"{attention}.{x}_proj": (DIM, DIM) for x in ("q", "k", "v", "out")}
            arrays |= draw_norm(rng, f"{name}.{attention}_layer_norm")
        for part, shape in shapes.items():
            arrays[f"{name}.{part}.weight"] = rng.normal(0, 0.4, shape)
            arrays[f"{name}.{part}.bias"] = rng.normal(0, 0.3, shape[0])
        arrays |= draw_norm(rng, f"{name}.final_layer_norm")
    return arrays


def logits(arrays, source, target, *, pre_norm, activation, angles):
    """Returns the logits [target, rows] of a model, by the equations in float64.

    Args:
        arrays: {name: array}, of the file of weights.
        source: rows of the source, with its end.
        target: rows that the decoder reads.
        pre_norm: whether the norm is before each sub-layer, and after each stack; or after each.
        activation: function of an array.
        angles: function of a length to the angles of the positions [length, DIM / 2].
    """
    arrays = {name: array.astype(np.float64) for name, array in arrays.items()}
    shared = arrays.get("model.shared.weight")

    def linear(name, x):
        return x @ arrays[f"{name}.weight"].T + arrays[f"{name}.bias"]

    def norm(name, x):
        return reference.layer_norm(x, arrays[f"{name}.weight"], arrays[f"{name}.bias"], 1e-5)

    def attention(name, x, memory, mask=None):
        inputs = {"q": x, "k": memory, "v": memory}
        q, k, v = (linear(f"{name}.{part}_proj", y) for part, y in inputs.items())
        heads = [
            reference.attention(*(y[:, i : i + DIM // HEADS] for y in (q, k, v)), mask)
            for i in range(0, DIM, DIM // HEADS)
        ]
        return linear(f"{name}.out_proj", np.concatenate(heads, axis=1))

    def before(name, x):
        return norm(name, x) if pre_norm else x

    def after(name, x):
        return x if pre_norm else norm(name, x)

    def stack(side, rows, memory=None):
        matrix, turns = arrays.get(f"model.{side}.embed_tokens.weight", shared), angles(len(rows))
        x = DIM**0.5 * matrix[rows] + np.concatenate([np.sin(turns), np.cos(turns)], axis=1)
        mask = None if memory is None else np.tri(len(x), dtype=bool)
        for layer in range(LAYERS[side]):
            name = f"model.{side}.layers.{layer}"
            y = before(f"{name}.self_attn_layer_norm", x)
            y = attention(f"{name}.self_attn", y, y, mask)
            x = after(f"{name}.self_attn_layer_norm", x + y)
            if memory is not None:
                y = before(f"{name}.encoder_attn_layer_norm", x)
                y = attention(f"{name}.encoder_attn", y, memory)
                x = after(f"{name}.encoder_attn_layer_norm", x + y)
            y = before(f"{name}.final_layer_norm", x)
            y = linear(f"{name}.fc2", activation(linear(f"{name}.fc1", y)))
            x = after(f"{name}.final_layer_norm", x + y)
        return norm(f"model.{side}.layer_norm", x) if pre_norm else x

    hidden = stack("decoder", target, stack("encoder", source))
    matrix = arrays.get("lm_head.weight", arrays.get("model.decoder.embed_tokens.weight", shared))
    return hidden @ matrix.T + arrays.get("final_logits_bias", 0)


def rows_of(ids, rows):
    """Returns the rows of our ids without padding, a list."""
    return [rows[i] for i in np.asarray(ids) if i != 0]


def check_logits(translator, rows, expected, codes=()):
    """Asserts that the model's logits are those of `expected`, and that what it bans is banned.

    Args:
        translator: `Translator` of a folder.
        rows: the row of each of our ids.
        expected: function of the rows of source and target to the logits.
        codes: source and target language of all texts, for a model of many.
    """
    texts = tf.constant(TEXTS)
    source_ids = translator.encode(texts, *(tf.fill([len(TEXTS)], code) for code in codes))
    first = [tf.fill([len(TEXTS)], translator.languages.ids[code]) for code in codes[1:]]
    read = shift_right(translator.targets.encode(texts[::-1], *first).ids, 3)
    found = translator.model({"source_ids": source_ids, "target_ids": read}).numpy()
    outputs = [1, 2, *range(4, len(rows))]
    for row, ids in enumerate(read.numpy()):
        source, target = rows_of(source_ids[row], rows), rows_of(ids, rows)
        theirs = expected(source, target)[:, [rows[i] for i in outputs]]
        np.testing.assert_allclose(found[row, : len(target)][:, outputs], theirs, atol=1e-4)
    assert found[:, :, [0, 3]].max() < -9_000


def check_scores(translator, rows, expected, codes=()):
    """Asserts that scores are log P / length, where a language is certain: as `check_logits`."""
    translator.beam_size = 3
    of_all = (tf.fill([len(TEXTS)], code) for code in codes)
    source_ids = translator.encode(tf.constant(TEXTS), *of_all)
    first = [tf.fill([len(TEXTS), 1], translator.languages.ids[code]) for code in codes[1:]]
    found = translator.search(source_ids, *first, n_best=3)
    ended = 0
    for row, best in np.ndindex(len(TEXTS), 3):
        ids = found.ids[row, best].numpy()[: found.lengths[row, best]].tolist()
        assert ids[: len(first)] == [int(column[row, 0]) for column in first]
        read = rows_of([3, *ids], rows)
        steps = expected(rows_of(source_ids[row], rows), read[:-1])
        places = np.arange(len(first), len(ids))
        log_prob = np.log(reference.softmax(steps))[places, read[1 + len(first) :]].sum()
        np.testing.assert_allclose(found.scores[row, best], log_prob / len(ids), atol=1e-4)
        ended += ids[-1] == 1
    assert ended
