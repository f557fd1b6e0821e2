"""What decoding knows of a sentence and of its hypotheses."""

from typing import NamedTuple

import tensorflow as tf

from t2t_keras.layers.multi_head import KeyValue


class Memory(NamedTuple):
    """What decoding needs of the source, the same for all hypotheses of a sentence.

    Attributes:
        layers: each decoder layer's `KeyValue`, [batch, heads, source, width].
        mask: bool [batch, 1, 1, source], False on padding.
    """

    layers: tuple[KeyValue, ...]
    mask: tf.Tensor


class DecoderState(NamedTuple):
    """What decoding keeps of the hypotheses of each sentence.

    Attributes:
        memory: `Memory` of the source.
        ancestry: int32 [batch, beams, steps], on which beam each hypothesis stood at each step.
        caches: each decoder layer's `KeyValue`, [batch, heads, steps · beams, width], what every
            beam read at every step.
    """

    memory: Memory
    ancestry: tf.Tensor
    caches: tuple[KeyValue, ...]
