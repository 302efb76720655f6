"""Pretrained models that several methods use.

None downloads on its own: a model comes out of an installed package, or is what the user names.
"""

from theses.models.language import LANGUAGE_MODELS, load_language_model

__all__ = ["LANGUAGE_MODELS", "load_language_model"]
