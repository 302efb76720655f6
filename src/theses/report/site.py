"""The report as a folder of files, written whole or not at all."""

from __future__ import annotations

import csv
import dataclasses
import io
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from theses.catalogue import Card, cards
from theses.report.charts import require_extra, study_charts, vega_bundle
from theses.report.pages import front_page, method_page, table_page, unheld_page
from theses.report.pages.layout import Site
from theses.report.records import Record, Replicate, tally
from theses.report.sources import Source

__all__ = ["MARKER", "ReportError", "Written", "write_report"]

#: A folder with this file is a report of ours, and another one may take its place.
MARKER: Final = ".theses-report"

_ASSETS: Final = Path(__file__).parent / "assets"


class ReportError(ValueError):
    """The report cannot be written where it should be; the message says why."""


@dataclass(frozen=True)
class Written:
    """What a report holds.

    Parameters
    ----------
    index : pathlib.Path
        Its front page.
    n_methods, n_measured : int
        Methods, and those of them with measurements.
    verdicts : dict of str to int
        Claims by verdict, identities left out.
    notes : tuple of str
        Charts that could not be drawn, by method.
    """

    index: Path
    n_methods: int
    n_measured: int
    verdicts: dict[str, int]
    notes: tuple[str, ...]


def write_report(source: Source, output: Path, catalogue: Sequence[Card] | None = None) -> Written:
    """Render measurements to a folder of static pages that need no network.

    The pages are made in a folder beside the output, which is then put in its place; what was there before is
    replaced only if it is empty or a report of ours, and stays as it is if anything fails.

    Parameters
    ----------
    source : Source
        Where records come from.
    output : pathlib.Path
        Folder of the report.
    catalogue : sequence of Card, optional
        Methods to show; all if left out.

    Returns
    -------
    Written
        What was written.

    Raises
    ------
    ReportError
        If the output is something else than a report or an empty folder.
    ImportError
        If a library of the extra ``report`` is missing.
    """
    require_extra()
    output = output.absolute()
    _check_place(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{output.name}-", dir=output.parent) as folder:
        new = Path(folder) / "new"
        written = _write(source, new, cards() if catalogue is None else catalogue)
        _put_in_place(new, output, Path(folder) / "old")
    return dataclasses.replace(written, index=output / "index.html")


def _check_place(output: Path) -> None:
    if output.is_symlink() or (output.exists() and not output.is_dir()):
        raise ReportError(f"{output}: not a folder; name another with -o")
    if output.is_dir() and any(output.iterdir()) and not (output / MARKER).is_file():
        raise ReportError(
            f"{output}: holds files that are not a report of theses ({MARKER} is missing) and is left alone;"
            " name another folder with -o"
        )


def _put_in_place(new: Path, output: Path, old: Path) -> None:
    if not output.exists():
        new.rename(output)
        return
    # Asked again: pages take a while to write, and someone may have used the folder meanwhile.
    _check_place(output)
    output.rename(old)
    try:
        new.rename(output)
    except OSError:
        old.rename(output)
        raise


def _write(source: Source, root: Path, catalogue: Sequence[Card]) -> Written:
    (root / "methods").mkdir(parents=True)
    shutil.copytree(_ASSETS, root / "assets")
    _write_text(root / "assets" / "vega.js", vega_bundle())
    site = Site(source.description)
    records: list[Record] = []
    notes: list[str] = []
    for card in catalogue:
        record = source.record(card)
        figures, missed = study_charts(card, record.tables)
        notes += [f"{card.slug}: {note}" for note in missed]
        _write_text(root / "methods" / f"{card.slug}.html", method_page(site, record, figures, missed))
        _write_text(root / "methods" / f"{card.slug}.csv", _values_csv(record))
        # Tables may be large, and only the method's own page needs them.
        records.append(dataclasses.replace(record, tables={}))
    _write_text(root / "index.html", front_page(site, records))
    _write_text(root / "methods.html", table_page(site, records))
    _write_text(root / "unheld.html", unheld_page(site, records))
    _write_text(root / MARKER, "This folder was written by theses report, which may replace it.\n")
    return Written(
        index=root / "index.html",
        n_methods=len(records),
        n_measured=sum(record.provenance is not None for record in records),
        verdicts=tally(claim for record in records for claim in record.claims),
        notes=tuple(notes),
    )


def _write_text(path: Path, text: str) -> None:
    # What a snapshot calls text may hold halves of surrogate pairs, which no encoding has.
    path.write_bytes(text.encode("utf-8", errors="replace"))


def _values_csv(record: Record) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(
        ("claim", "verdict", "kind", "metric", "bound", "side", "seed", "value", "hits", "trials")
    )
    for row in _value_rows(record):
        writer.writerow([_cell(cell) for cell in row])
    return stream.getvalue()


def _value_rows(record: Record) -> Iterator[tuple[Any, ...]]:
    for claim in record.claims:
        for check in claim.checks:
            about = (claim.id, check.verdict, claim.kind)
            for value in check.values:
                yield (*about, check.metric, check.bound, "method", *_value_cells(value))
            for value in check.baseline:
                yield (*about, check.baseline_metric, "", "baseline", *_value_cells(value))
    for item in record.observations:
        for value in item.values:
            yield ("", "", "", item.metric, "", "observation", *_value_cells(value))


def _value_cells(value: Replicate) -> tuple[Any, ...]:
    return value.seed, value.value, value.hits, value.trials


def _cell(cell: Any) -> Any:
    # A spreadsheet would run text that begins like a formula.
    if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{cell}"
    return cell
