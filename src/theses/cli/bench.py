"""``theses bench``: time a method beside its peers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from theses.catalogue import lookup

__all__ = ["bench"]


def bench(
    method: Annotated[str, typer.Argument(help="Slug, name, alias or arXiv id.", metavar="METHOD")],
    as_json: Annotated[bool, typer.Option("--json", help="Rows as JSON.")] = False,
    store: Annotated[Path | None, typer.Option(help="Result store.", show_default=False)] = None,
) -> None:
    """Time a method beside its peers, interleaved in one run that has the machine to itself.

    Benchmarks are part of the source checkout and need the extra peers.
    """
    card = lookup(method)
    import theses
    from theses.cli.output import emit
    from theses.evidence.runner import run_benchmark
    from theses.evidence.store import Store, default_store_path

    root = Path(theses.__file__).resolve().parents[2] / "benchmarks"
    path = root.joinpath(*card.package.split("."), card.slug.replace("-", "_") + ".py")
    if not path.is_file():
        raise ValueError(f"no benchmark at {path}: benchmarks are run from a source checkout")
    with Store(store or default_store_path()) as opened:
        rows = run_benchmark(card, path, opened)
    lines = []
    for row in rows:
        target = f", target {row['target']}" if row["target"] else ""
        memory = f", peak {row['peak_mb']:.0f} MB" if row["peak_mb"] is not None else ""
        lines.append(
            f"{row['peer']}, {row['size']}: ours {_median(row['ours_s']):.3g} s, peer"
            f" {_median(row['peer_s']):.3g} s, ratio {row['ratio']:.3g}{target}{memory}; {row['quality']}"
        )
    emit(rows, as_json=as_json, text="\n".join(lines))


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
