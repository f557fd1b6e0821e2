"""A config whose run takes a second or two within the process."""

from pipelines.configs import multi30k_en_de


def small_config(folder):
    """Returns the config of four steps on the text in a folder, as `write_folder` makes it."""
    config = multi30k_en_de.get_config()
    config.model.update(
        vocab_size=300,
        num_encoder_layers=1,
        num_decoder_layers=1,
        model_dim=16,
        feed_forward_dim=32,
        num_heads=2,
        position_embedding="learned",
        max_positions=60,
    )
    config.data.update(folder=str(folder), tokens_per_batch=200, max_length=40)
    config.train.update(
        optimizer="adam",  # one graph, sooner made
        weight_decay=0.0,
        steps=4,
        log_every=2,
        validate_every=2,
        validation_sentences=0,
        checkpoint_every=2,
        keep_checkpoints=2,
        average_checkpoints=2,
        micro_batches=1,
        parallel_micro_batches=1,
        mixed_precision="",
    )
    config.decode.update(beam_size=3, max_extra_tokens=4)
    config.knn.k = 0
    return config
