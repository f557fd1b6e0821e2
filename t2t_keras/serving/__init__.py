"""Trained models as SavedModels that a model server loads."""

from t2t_keras.serving.export import export_saved_model
from t2t_keras.serving.versions import next_version

__all__ = ["export_saved_model", "next_version"]
