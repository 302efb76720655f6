"""``theses apply aqua-kv``: a language model and text in, predictors for a smaller key-value cache out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from torch import Tensor

    from theses.datasets.files import FileHead

__all__ = ["apply", "suggest"]

# What a parameter of the method is called here.
_OPTIONS = {
    "bits": "--bits",
    "dim": "--dim",
    "rank": "--rank",
    "buffer_size": "--buffer",
    "prefix_size": "--prefix",
    "length": "--length",
    "name_or_path": "MODEL",
}


def apply(
    model: Annotated[
        str,
        typer.Argument(
            help="Language model: a folder in Hugging Face's layout, a .gguf file, or smollm2-135m-instruct."
        ),
    ] = "smollm2-135m-instruct",
    text: Annotated[
        list[Path] | None,
        typer.Option("--text", help="UTF-8 text to calibrate on; its last quarter is held out. Repeatable."),
    ] = None,
    bits: Annotated[int, typer.Option(help="Bits a value of layers 1, 2, ...: 1 to 4.")] = 2,
    dim: Annotated[int, typer.Option(help="Values coded together: 1, 2 or 4.")] = 2,
    rank: Annotated[
        int | None, typer.Option(help="Rank of the predictors; not restricted if left out.")
    ] = None,
    length: Annotated[int, typer.Option(help="Tokens of a piece of text.")] = 1_024,
    tokens: Annotated[int, typer.Option(help="Most tokens to calibrate on.")] = 8_192,
    test_tokens: Annotated[int, typer.Option(help="Most held-out tokens to take perplexity on.")] = 2_048,
    buffer: Annotated[int, typer.Option(help="Newest tokens that wait uncoded.")] = 128,
    prefix: Annotated[int, typer.Option(help="First tokens that are never coded.")] = 4,
    device: Annotated[str, typer.Option(help="Torch device.")] = "cpu",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for the predictors and their quantizers.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Shrink the key-value cache of a language model to some 2 bits a value, and see what it costs.

    Calibrates predictors on the text, saves them, and reports bits a value, memory, and perplexity on the
    held-out end of the text: with a full cache, with this one, and with the same quantizer used directly.
    """
    from theses.cli.output import emit

    try:
        if not text:
            raise ValueError("--text FILE is needed: text like what the model will read")
        if output is not None and output.exists() and not output.is_dir():
            raise ValueError(f"{output}: --output is a folder, and this is a file")
        answer, shown = _shrink(
            model, text, bits, dim, rank, length, tokens, test_tokens, buffer, prefix, device, output
        )
    except ValueError as error:
        name, *rest = str(error).split(" ", 1)
        if name not in _OPTIONS:
            raise
        raise ValueError(" ".join([_OPTIONS[name], *rest])) from error
    except NotImplementedError as error:
        raise ValueError(f"{model}: {error}") from error
    emit(answer, as_json=as_json, text=shown)


def suggest(files: Sequence[FileHead]) -> str | None:
    """Command for files that look like what the method takes.

    Parameters
    ----------
    files : sequence of FileHead
        What the files hold.

    Returns
    -------
    str or None
        None: a model is a folder, and lines of text alone may be anything.
    """
    return None


def _shrink(
    name: str,
    paths: Sequence[Path],
    bits: int,
    dim: int,
    rank: int | None,
    length: int,
    tokens: int,
    test_tokens: int,
    buffer: int,
    prefix: int,
    device: str,
    output: Path | None,
) -> tuple[dict[str, Any], str]:
    from theses.lm.inference.aqua_kv import (
        AquaKVCache,
        AquaPredictors,
        HiggsQuantizer,
        calibrate,
        chunked_perplexity,
    )
    from theses.models import load_language_model
    from theses.validation import check_integer

    quantizer = HiggsQuantizer(bits=bits, dim=dim)
    check_integer("length", length, minimum=16)
    check_integer("buffer_size", buffer, minimum=1)
    check_integer("prefix_size", prefix, minimum=0)
    documents = [_read(path) for path in paths]
    try:
        network, tokenizer = load_language_model(name, device=device)
    except OSError as error:
        raise ValueError(f"MODEL {name}: {str(error).splitlines()[0]}") from None
    calibration, held_out = _pieces(documents, paths, tokenizer, length, tokens, test_tokens)
    predictors, seconds = _timed(
        lambda: calibrate(network, calibration, quantizer, rank=rank, prefix_size=prefix)
    )
    plain = AquaPredictors(
        [],
        [],
        n_layers=predictors.n_layers,
        width=predictors.width,
        predictor="none",
        quantizer=quantizer,
        first_layer_quantizer=predictors.first_layer_quantizer,
    )
    caches: list[AquaKVCache] = []

    def cached(used: AquaPredictors) -> Callable[[], AquaKVCache]:
        def make() -> AquaKVCache:
            caches[:] = [AquaKVCache(network, used, prefix_size=prefix, buffer_size=buffer)]
            return caches[0]

        return make

    step = min(256, max(length // 4, 1))
    perplexities: dict[str, float] = {}
    spent: dict[str, float] = {}
    makers = {"full": None, "direct": cached(plain), "aqua": cached(predictors)}
    for variant, make in makers.items():
        measure = partial(chunked_perplexity, network, held_out, make, chunk_tokens=step)
        perplexities[variant], spent[variant] = _timed(measure)
    cache = caches[0]
    held, read = cache.memory_bytes(), cache.get_seq_length()
    full = read * 2 * predictors.n_layers * predictors.width * 2
    losses = {v: perplexities[v] / perplexities["full"] - 1 for v in ("aqua", "direct")}
    if output is not None:
        predictors.save_pretrained(output)
    where = str(output) if output is not None else "FOLDER"
    python = [
        "from theses.lm.inference.aqua_kv import AquaKVCache, AquaPredictors",
        "from theses.models import load_language_model",
        "",
        f"model, tokenizer = load_language_model({name!r})",
        f"predictors = AquaPredictors.from_pretrained({where!r})",
        f"cache = AquaKVCache(model, predictors, prefix_size={prefix}, buffer_size={buffer})",
        'prompt = tokenizer("...", return_tensors="pt")',
        "model.generate(**prompt, cache=cache, max_new_tokens=100)",
    ]
    code_bits = quantizer.bits_per_value(predictors.width)
    answer = {
        "model": name,
        "layers": predictors.n_layers,
        "channels": predictors.width,
        "calibration_tokens": calibration.numel(),
        "held_out_tokens": held_out.numel(),
        "calibration_seconds": seconds,
        "bits_per_value": code_bits,
        "bits_per_value_held": cache.bits_per_value(),
        "cache_tokens": read,
        "cache_bytes": held,
        "cache_bytes_bf16": full,
        "predictor_parameters": predictors.n_parameters,
        "perplexity": perplexities,
        "relative_loss": losses,
        "perplexity_seconds": spent,
        "yardstick": "the same quantizer without predictors",
        "written": None if output is None else str(output),
        "python": python,
    }
    after = f"after {read:,} tokens"
    aqua, direct, full_ppl = (perplexities[variant] for variant in ("aqua", "direct", "full"))
    told = {
        "bits a value": f"{code_bits:.3g} in codes, {cache.bits_per_value():.3g} with all that is held, "
        f"{after}",
        "memory": f"{held / 2**20:.2f} MiB, not {full / 2**20:.2f} as in bf16 ({held / full:.1%}), {after}",
        "perplexity": f"{aqua:.4g}, {losses['aqua']:+.2%} to {full_ppl:.4g} with a full cache, on "
        f"{held_out.numel():,} held-out tokens ({spent['aqua']:.2g} s; {spent['full']:.2g} s)",
        "yardstick": f"{direct:.4g}, {losses['direct']:+.2%}, with the same quantizer and no predictors "
        f"({spent['direct']:.2g} s)",
    }
    lines = [
        f"{name}: {predictors.n_layers} layers, {predictors.width} channels of keys and of values",
        f"calibrated on {calibration.numel():,} tokens in {seconds:.3g} s; "
        f"{predictors.n_parameters:,} parameters of predictors",
        "",
        *(f"{what:<17} {found}" for what, found in told.items()),
        "",
        f"written           {output}"
        if output is not None
        else "nothing written: -o FOLDER keeps the predictors",
        "",
        "in Python",
        *(f"  {line}".rstrip() for line in python),
    ]
    return answer, "\n".join(lines)


def _read(path: Path) -> str:
    from theses.datasets.files import FileError

    if not path.is_file():
        raise FileError(f"{path}: no such file")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: not UTF-8 at byte {error.start}") from None
    if not text.strip():
        raise FileError(f"{path}: holds no text")
    return text


def _pieces(
    documents: Sequence[str],
    paths: Sequence[Path],
    tokenizer: Any,
    length: int,
    tokens: int,
    test_tokens: int,
) -> tuple[Tensor, Tensor]:
    """Pieces of ``length`` tokens: of the first three quarters of each text, and of its end."""
    import torch

    from theses.datasets.files import FileError

    sides: list[list[list[int]]] = [[], []]
    for document in documents:
        # More than is used is not worth tokenizing; tokens are seldom longer than 8 characters.
        cut = len(document) * 3 // 4
        for side, part, wanted in (
            (0, document[:cut], tokens),
            (1, document[cut:], test_tokens),
        ):
            ids = tokenizer(part[: 8 * max(wanted, length)], add_special_tokens=False)["input_ids"]
            sides[side] += [ids[i : i + length] for i in range(0, len(ids) - length + 1, length)]
    kept = [side[: max(limit // length, 1)] for side, limit in zip(sides, (tokens, test_tokens), strict=True)]
    for what, pieces in zip(("first three quarters", "last quarter"), kept, strict=True):
        if not pieces:
            named = ", ".join(str(path) for path in paths)
            raise FileError(
                f"{named}: the {what} hold no {length} tokens in one text; give more, or a smaller --length"
            )
    return torch.tensor(kept[0]), torch.tensor(kept[1])


def _timed(function: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = function()
    return result, time.perf_counter() - start
