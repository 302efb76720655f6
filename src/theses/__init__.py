"""Methods of ICML 2025 as software, with each paper's claims measured again on your own machine.

Sub-packages are imported on first use: ``import theses`` loads no numerical library.

Examples
--------
>>> import theses
>>> theses.__version__.count(".")
2
"""

from theses._lazy import lazy_submodules

__version__ = "0.1.0"
__all__ = ["__version__"]

__getattr__, __dir__ = lazy_submodules(__name__, __path__, __all__)
