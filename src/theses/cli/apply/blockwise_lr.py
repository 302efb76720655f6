"""``theses apply blockwise-lr``: blocks of a language model, their learning rates and their sharpness."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import torch

    from theses.datasets.files import FileHead

__all__ = ["apply", "suggest"]


def apply(
    model: Annotated[
        str,
        typer.Argument(help="Folder or name of a causal language model of Hugging Face, or a built-in one."),
    ],
    text: Annotated[
        Path | None,
        typer.Argument(
            help="Text (UTF-8) to measure the sharpness on; without it only the blocks are shown."
        ),
    ] = None,
    base_lr: Annotated[float, typer.Option(help="Learning rate tuned for plain AdamW.")] = 6e-4,
    batches: Annotated[int, typer.Option(help="Batches of text.")] = 4,
    batch: Annotated[int, typer.Option(help="Windows a batch.")] = 4,
    length: Annotated[int, typer.Option(help="Tokens a window.")] = 128,
    seed: Annotated[int, typer.Option(help="Seed of windows and labels.")] = 0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the table of blocks here.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Which learning rate for which block of a transformer, and does its sharpness agree?

    Prints the blocks of the model with the paper's ratios, and with a text how sharp each block is, with a
    standard error, and the ratios that would follow from it.
    """
    import time

    import polars as pl

    from theses.cli.output import emit
    from theses.datasets.files import write_table
    from theses.models import load_language_model
    from theses.optim.blockwise_lr import (
        BLOCKS,
        FUSED,
        PAPER_RATIOS,
        block_sharpness,
        blockwise_groups,
        suggest_ratios,
    )
    from theses.validation import check_integer, check_real

    check_real("--base-lr", base_lr, minimum=0, include=False)
    for name, value in (("--batches", batches), ("--batch", batch)):
        check_integer(name, value, minimum=1)
    check_integer("--length", length, minimum=2)
    check_integer("--seed", seed, minimum=0)
    loaded, tokenizer = load_language_model(model)
    windows = None if text is None else _windows(text, tokenizer, batches, batch, length, seed)
    groups = blockwise_groups(loaded, base_lr)
    sizes = dict.fromkeys(BLOCKS, 0)
    for group in groups:
        for parameter, (axis, segments) in zip(group["params"], group["layouts"], strict=True):
            for block, start, stop, _ in segments:
                sizes[block] += parameter.numel() * (stop - start) // max(parameter.shape[axis], 1)
    rows: list[dict[str, Any]] = [
        {
            "block": block,
            "entries": n,
            "ratio": float(PAPER_RATIOS[block]),
            "rate": base_lr * PAPER_RATIOS[block],
        }
        for block, n in sizes.items()
        if n
    ]
    fused = sorted({group["block"] for group in groups if group["block"] in FUSED})
    answer: dict[str, Any] = {"model": model, "base_lr": base_lr, "min_lr": base_lr / 20, "blocks": rows}
    lines = [f"{model}: {sum(sizes.values()):,} trainable entries, base rate {base_lr:g}", ""]
    python = [
        "from theses.models import load_language_model",
        "from theses.optim.blockwise_lr import BlockwiseAdamW, blockwise_groups, blockwise_schedule",
        "",
        f"model, tokenizer = load_language_model({model!r})",
        f"optimizer = BlockwiseAdamW(blockwise_groups(model, {base_lr!r}))",
        f"schedule = blockwise_schedule(optimizer, warmup=1000, total=50000, min_lr={base_lr / 20:.6g})",
    ]
    if windows is not None:
        start_s = time.perf_counter()
        report = block_sharpness(
            loaded, lambda m, ids: m(input_ids=ids, use_cache=False).logits, windows, generator=seed
        )
        seconds = time.perf_counter() - start_s
        ratios = suggest_ratios(report)
        for row in rows:
            row["sharpness"] = report.per_block_mean[row["block"]]
            row["error"] = report.per_block_error[row["block"]]
            row["suggested"] = ratios[row["block"]]
        answer |= {"agreement": report.agreement(), "order": list(report.order), "seconds": seconds}
    measured = windows is not None
    head = f"{'block':<6} {'entries':>14} {'ratio':>6} {'peak rate':>10}"
    lines.append(head + (f"  {'sharpness':>9} {'+-':>8} {'suggested':>9}" if measured else ""))
    for row in rows:
        line = f"{row['block']:<6} {row['entries']:>14,} {row['ratio']:>6g} {row['rate']:>10.3g}"
        if measured:
            line += f"  {row['sharpness']:>9.2e} {row['error']:>8.1e} {row['suggested']:>9.3g}"
        lines.append(line)
    lines += ["", f"yardstick: plain AdamW trains all of it at {base_lr:g}; a step costs the same"]
    if fused:
        lines.append(f"fused tensors ({', '.join(fused)}) need BlockwiseAdamW, which splits them")
    if measured:
        lines += [
            f"sharpness rises as {' < '.join(answer['order'])}; rank correlation with the paper's order "
            f"{answer['agreement']:+.2f} ({answer['seconds']:.2g} s)",
            "suggested ratios are ours, not the paper's: (sharpness of norm / of block) ** 0.5, at most 10",
        ]
    lines += ["", "the same in Python", *(f"  {line}".rstrip() for line in python)]
    answer["python"] = python
    if output is not None:
        write_table(output, pl.DataFrame(rows))
        answer["written"] = str(output)
        lines += ["", f"written: {output}"]
    emit(answer, as_json=as_json, text="\n".join(lines))


def suggest(files: Sequence[FileHead]) -> str | None:
    """Command for files: none, since it starts from a model and not from data.

    Parameters
    ----------
    files : sequence of FileHead
        What the files hold.

    Returns
    -------
    None
        Always.
    """
    del files
    return None


def _windows(
    path: Path, tokenizer: Any, batches: int, batch: int, length: int, seed: int
) -> list[torch.Tensor]:
    import numpy as np
    import torch

    from theses.datasets.files import FileError

    if not path.is_file():
        raise FileError(f"{path}: no such file")
    try:
        content = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: is no UTF-8 text ({error.reason} at byte {error.start})") from None
    ids = np.asarray(tokenizer(content)["input_ids"], dtype=np.int64)
    if len(ids) < length:
        raise FileError(f"{path}: has {len(ids)} tokens, a window wants {length} (--length)")
    starts = np.random.default_rng(seed).integers(len(ids) - length + 1, size=(batches, batch))
    return [torch.from_numpy(np.stack([ids[s : s + length] for s in row])) for row in starts]
