"""``theses results``: what a store holds, and publishing it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from theses.catalogue import PRESETS, Card, cards, lookup
from theses.validation import check_choice

__all__ = ["results"]


def results(
    methods: Annotated[
        list[str] | None,
        typer.Argument(help="Methods; all that were run if left out.", metavar="[METHOD]..."),
    ] = None,
    preset: Annotated[str, typer.Option(help=f"One of {', '.join(PRESETS)}.")] = "standard",
    output_format: Annotated[str, typer.Option("--format", help="table, json or csv.")] = "table",
    publish: Annotated[
        list[str] | None, typer.Option(metavar="METHOD", help="Put a method's results into the snapshot.")
    ] = None,
    snapshot: Annotated[Path, typer.Option(help="The snapshot.")] = Path("docs/evidence.json"),
    store: Annotated[Path | None, typer.Option(help="Result store.", show_default=False)] = None,
) -> None:
    """Show the judged claims of a store, or publish a method's standard results into the snapshot."""
    check_choice("preset", preset, PRESETS)
    check_choice("--format", output_format, ("table", "json", "csv"))
    from theses.cli.output import emit
    from theses.cli.verdicts import print_verdicts, verdict_rows
    from theses.evidence.runner import measurements
    from theses.evidence.snapshot import publish as publish_method
    from theses.evidence.store import Store, default_store_path
    from theses.evidence.verdict import judge_card

    path = store or default_store_path()
    if not path.is_file():
        raise ValueError(f"no result store at {path}; theses reproduce METHOD makes one")
    with Store(path) as opened:
        if publish:
            for name in publish:
                entry = publish_method(lookup(name), opened, snapshot)
                count = sum(claim["verdict"] == "holds" for claim in entry["claims"].values())
                typer.echo(
                    f"{lookup(name).slug}: {count} of {len(entry['claims'])} claims hold; now in {snapshot}"
                )
            return
        wanted = [lookup(name) for name in methods] if methods else _cards_in(opened.methods(), preset)
        judged = []
        for card in wanted:
            units = opened.latest(card.slug, preset)
            records = list(units.values())
            judged.append((card, judge_card(card, preset, measurements(records) or [None])))
    rows = [row for card, verdicts in judged for row in verdict_rows(card, verdicts)]
    if output_format == "json":
        emit(rows, as_json=True, text="")
    elif output_format == "csv":
        import polars as pl

        typer.echo(pl.DataFrame(rows, infer_schema_length=None).write_csv(), nl=False)
    elif not judged:
        typer.echo(f"{path} holds no unit of the {preset} preset")
    else:
        for card, verdicts in judged:
            print_verdicts(card, preset, verdicts)


def _cards_in(stored: list[tuple[str, str]], preset: str) -> list[Card]:
    run = {method for method, at in stored if at == preset}
    return [card for card in cards() if card.slug in run]
