"""Tensor functions that the layers use; each has a plain form, and may have fast forms.

The plain form is the definition, in a few lines of TensorFlow; GPUs run it. A fast form is
for CPUs and computes the same within the tolerance of a test. Its docstring gives the
measured gain. `ops.made_for(device)` states the device of a graph; `ops.plain()` switches all
functions to the plain form. No function uses a layer.
"""

from t2t_keras.ops.dense import add_bias, layer_norm, silu, sum_rows
from t2t_keras.ops.dropout import dropout
from t2t_keras.ops.gradients import define_gradient
from t2t_keras.ops.indices import (
    PAD_ID,
    append,
    arange,
    index_dtype,
    is_token,
    on_host,
    pad_axis,
    pad_end,
    to_index,
    with_place,
)
from t2t_keras.ops.linear_cross_entropy import (
    LossTerms,
    linear_cross_entropy,
    log_probability,
    smoothed_cross_entropy,
)
from t2t_keras.ops.products import (
    batch_matmul,
    compute_now,
    in_int8,
    logits,
    lookup,
    matmul,
    merged_kernel,
    partial_logits,
    softmax,
    transpose,
    with_step_products,
)
from t2t_keras.ops.reshape import reshape
from t2t_keras.ops.top_k import TOP_K_BLOCK, argmax, block_size, top_k, top_k_log_softmax
from t2t_keras.ops.trace import (
    device,
    fast_forms,
    made_for,
    options,
    plain,
    traced_with,
    visible_device,
)
