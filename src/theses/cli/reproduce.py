"""``theses reproduce``: run the study of a method and judge its claims."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from theses.catalogue import PRESETS, Card, cards, lookup
from theses.validation import check_choice

if TYPE_CHECKING:
    from theses.evidence.store import UnitRecord
    from theses.evidence.verdict import ClaimVerdict

__all__ = ["choose", "reproduce", "seeds_from"]


def reproduce(
    methods: Annotated[
        list[str] | None, typer.Argument(help="Slug, name, alias or arXiv id.", metavar="METHOD...")
    ] = None,
    package: Annotated[str, typer.Option(help="All methods of a package, such as data.")] = "",
    all_methods: Annotated[bool, typer.Option("--all", help="All methods.")] = False,
    preset: Annotated[str, typer.Option(help=f"One of {', '.join(PRESETS)}.")] = "standard",
    seeds: Annotated[str, typer.Option(help="Such as 0-4 or 1,3; the card's own if left out.")] = "",
    jobs: Annotated[int, typer.Option(min=1, help="Units at a time; timed units always run alone.")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Keep what is finished and unchanged.")] = False,
    timeout: Annotated[float | None, typer.Option(min=0.1, help="Seconds a unit may take.")] = None,
    store: Annotated[Path | None, typer.Option(help="Result store.", show_default=False)] = None,
    device: Annotated[str, typer.Option(help="Torch device.")] = "cpu",
    data: Annotated[Path | None, typer.Option(help="Folder with the paper's data, for preset paper.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Cap on samples: a trial run.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 unless every claim holds.")] = False,
    check: Annotated[
        Path | None,
        typer.Option(help="A snapshot, such as docs/evidence.json: exit with 1 if a verdict differs here."),
    ] = None,
) -> None:
    """Run the study of one or more methods and judge their claims on this machine.

    Exit status: 0 when every unit ran, whatever the verdicts; 2 when a unit failed.
    """
    chosen = choose(methods or [], package, all_methods)
    check_choice("preset", preset, PRESETS)
    from theses.catalogue.published import published
    from theses.cli.progress import listener_for
    from theses.cli.verdicts import print_verdicts
    from theses.evidence.runner import Options, run_units, units_of
    from theses.evidence.snapshot import compare
    from theses.evidence.store import Store, default_store_path

    snapshot = published(check) if check is not None else None
    options = Options(device=device, data_folder=data.resolve() if data else None, limit=limit)
    units = {
        card.slug: units_of(card, preset, seeds_from(seeds) or list(range(card.seeds)), options)
        for card in chosen
    }
    with Store(store or default_store_path()) as opened:
        everything = [unit for batch in units.values() for unit in batch]
        with listener_for(everything) as listener:
            records = run_units(
                everything,
                opened,
                jobs=jobs,
                resume=resume,
                timeout=timeout,
                options=options,
                listener=listener,
            )
        by_method: dict[str, list[UnitRecord]] = {card.slug: [] for card in chosen}
        for record in records:
            by_method[record.key.method].append(record)
        all_verdicts = {card.slug: _judge(card, preset, by_method[card.slug]) for card in chosen}
        if preset == "standard" and not seeds and limit is None:
            for card in chosen:
                opened.add_verdicts(
                    card.slug,
                    preset,
                    units[card.slug][0].key.digest,
                    max(record.started_at for record in by_method[card.slug]),
                    {v.claim.id: v.verdict for v in all_verdicts[card.slug]},
                )
    status = 0
    for card in chosen:
        verdicts = all_verdicts[card.slug]
        if preset == "smoke":
            ran = sum(record.status == "done" for record in by_method[card.slug])
            typer.echo(f"{card.slug}: {ran} smoke unit(s) ran; smoke tests the wiring and judges nothing")
        else:
            print_verdicts(card, preset, verdicts)
        if strict and any(v.verdict not in ("holds", "not run") for v in verdicts):
            status = 1
        if snapshot is not None:
            status = max(status, _report_agreement(card, compare(card, verdicts, snapshot)))
    failed = [record for record in records if record.status != "done"]
    for record in failed:
        typer.echo(
            f"\n{record.key.method}, seed {record.key.seed}: {record.status}\n{record.error}", err=True
        )
    if failed:
        status = 2
    raise typer.Exit(status)


def choose(methods: list[str], package: str = "", all_methods: bool = False) -> list[Card]:
    """Cards that a command's arguments name.

    Parameters
    ----------
    methods : list of str
        Slugs, names, aliases or arXiv identifiers.
    package : str, default=""
        A package, or the start of a nested one.
    all_methods : bool, default=False
        Everything.

    Returns
    -------
    list of Card
        Each once.

    Raises
    ------
    ValueError
        If none or more than one way of choosing is used, or the package is unknown.
    """
    if (bool(methods) + bool(package) + all_methods) != 1:
        raise ValueError("name methods, or a --package, or --all")
    if methods:
        return list(dict.fromkeys(lookup(name) for name in methods))
    if all_methods:
        return list(cards())
    found = [card for card in cards() if card.package == package or card.package.startswith(package + ".")]
    if not found:
        known = ", ".join(sorted({card.package for card in cards()}))
        raise ValueError(f"no package is called {package!r}; known are {known}")
    return found


def seeds_from(text: str) -> list[int]:
    """Seeds from a list of numbers and ranges.

    Parameters
    ----------
    text : str
        Such as ``"0-4"`` or ``"1,3"``; empty for none.

    Returns
    -------
    list of int
        In the order given, each once.

    Raises
    ------
    ValueError
        If it is anything else.

    Examples
    --------
    >>> seeds_from("0-2,7")
    [0, 1, 2, 7]
    """
    seeds: list[int] = []
    for part in filter(None, text.replace(" ", "").split(",")):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise ValueError(f"--seeds takes numbers and ranges such as 0-4 or 1,3, got {text!r}")
        seeds += range(int(first), int(last if dash else first) + 1)
    return list(dict.fromkeys(seeds))


def _judge(card: Card, preset: str, records: list[UnitRecord]) -> list[ClaimVerdict]:
    from theses.evidence.runner import measurements
    from theses.evidence.verdict import judge_card

    return judge_card(card, preset, measurements(records))


def _report_agreement(card: Card, differing: dict[str, tuple[str, str]]) -> int:
    if not differing:
        typer.echo(f"{card.slug}: this machine agrees with the published verdicts")
        return 0
    for claim, (published, ours) in differing.items():
        typer.echo(f"{card.slug} {claim}: published {published}, here {ours}")
    return 1
