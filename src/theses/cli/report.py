"""``theses report``: measurements as a static site."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from theses.catalogue import PRESETS
from theses.validation import check_choice

__all__ = ["report"]


def report(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the site.")] = Path("report"),
    store: Annotated[Path | None, typer.Option(help="Result store.", show_default=False)] = None,
    snapshot: Annotated[
        Path | None,
        typer.Option(help="A snapshot, such as docs/evidence.json, instead of a store.", show_default=False),
    ] = None,
    preset: Annotated[str, typer.Option(help=f"Of a store: one of {', '.join(PRESETS)}.")] = "standard",
) -> None:
    """Render a result store or a snapshot to pages that work offline: open index.html in a browser.

    Without --store or --snapshot: your own store if there is one, else the published snapshot. A folder that
    is already there is replaced if it is empty or a report.
    """
    if store is not None and snapshot is not None:
        raise ValueError("give --store or --snapshot, not both")
    check_choice("--preset", preset, PRESETS)
    from theses.evidence.store import default_store_path
    from theses.report import SnapshotSource, Source, StoreSource, write_report
    from theses.resources import shipped_file

    source: Source
    if store is not None or (snapshot is None and default_store_path().is_file()):
        source = StoreSource(store or default_store_path(), preset)
    else:
        source = SnapshotSource(snapshot or shipped_file("docs/evidence.json"))
    written = write_report(source, output)
    for note in written.notes:
        typer.echo(f"warning: {note}", err=True)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in written.verdicts.items())
    typer.echo(f"{written.n_methods} methods, {written.n_measured} measured; claims: {counts}")
    typer.echo(f"Open {written.index}")
