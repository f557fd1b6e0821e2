"""Export of trained models as SavedModels for a model server."""

from t2t_keras.serving.export import export_saved_model, next_version

__all__ = ["export_saved_model", "next_version"]
