"""AQUA-KV: key-value caches at 2 to 2.5 bits a value, by predicting each layer from the one before.

Keys of neighbouring layers are close to linear functions of each other, and values of the keys of their own
layer and the values before. So only what such predictions miss is coded: a fraction of the norm, hence of the
error at equal bits. ``calibrate`` fits the predictors once, by least squares; ``AquaKVCache`` uses them in
``model(...)`` and ``model.generate``.

The files follow the paper: ``quantizers`` is the backbone (``grids`` its code book), ``predictors`` holds the
maps, ``states`` reads keys and values off a model, ``calibration`` fits the maps layer by layer, ``cache``
codes and reads, ``rotary`` undoes and redoes the rotation by position that would hide the linear relation.

References
----------
Shutova, Malinovskii, Egiazarian, Kuznedelev, Mazur, Surkov, Ermakov, Alistarh: Cache Me If You Must: Adaptive
Key-Value Quantization for Large Language Models, ICML 2025, arXiv 2501.19392.
"""

try:
    import transformers  # noqa: F401
except ImportError:
    raise ImportError(
        'AQUA-KV needs transformers, which is not installed: pip install "theses[lm]"'
    ) from None

from theses.lm.inference.aqua_kv.cache import AquaKVCache, chunked_perplexity
from theses.lm.inference.aqua_kv.calibration import (
    calibrate,
    coding_errors,
    equivalent_bits,
    fit_predictors,
)
from theses.lm.inference.aqua_kv.grids import grid_distortion, lloyd_grid, shipped_grid
from theses.lm.inference.aqua_kv.predictors import AquaPredictors, LayerReport
from theses.lm.inference.aqua_kv.quantizers import (
    HiggsQuantizer,
    KVQuantizer,
    QuantizedTensor,
    UniformQuantizer,
)
from theses.lm.inference.aqua_kv.states import LayerStates, layer_states

__all__ = [
    "AquaKVCache",
    "AquaPredictors",
    "HiggsQuantizer",
    "KVQuantizer",
    "LayerReport",
    "LayerStates",
    "QuantizedTensor",
    "UniformQuantizer",
    "calibrate",
    "chunked_perplexity",
    "coding_errors",
    "equivalent_bits",
    "fit_predictors",
    "grid_distortion",
    "layer_states",
    "lloyd_grid",
    "shipped_grid",
]
