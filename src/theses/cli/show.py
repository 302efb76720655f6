"""``theses show METHOD``: what a method is for, how to use it, and what its claims are worth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from theses.catalogue import Card
    from theses.cli.output import Line

__all__ = ["show"]

_MOST_VALUES = 6


def show(
    method: Annotated[str, typer.Argument(help="Slug, name, alias or arXiv identifier.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what a method is for, how to use it, and what its claims are worth.

    The verdicts are those of your own store if it has any of the method, else the published ones.
    """
    from theses.catalogue import lookup
    from theses.cli._evidence import own_verdicts, snapshot
    from theses.cli.output import emit, print_lines

    card = lookup(method)
    entry = snapshot().get(card.slug)
    own = own_verdicts(card.slug)
    claims = _claims(card, entry, None if own is None else own[1])
    if own is not None:
        source = f"your store {own[0]}"
    elif entry is not None:
        source = f"published, measured {entry['measured_at'][:10]} at revision {entry['revision'][:12]}"
    else:
        source = f"not measured yet; theses reproduce {card.slug} does"
    if as_json:
        emit(_answer(card, entry, claims, source), as_json=True, text="")
    else:
        print_lines(_page(card, entry, claims, source))


def _claims(
    card: Card, entry: Mapping[str, Any] | None, own: Mapping[str, str] | None
) -> list[dict[str, Any]]:
    """Claims with their last verdict; measured values belong to the published ones and stay with them."""
    result = []
    for claim in card.claims:
        seen = (entry or {}).get("claims", {}).get(claim.id, {})
        verdict = seen.get("verdict", "not measured") if own is None else own.get(claim.id, "not measured")
        measured = {check["metric"]: check for check in seen.get("checks", ())} if own is None else {}
        checks = [
            {
                "metric": check.metric,
                "bound": check.bound,
                "aggregate": check.aggregate,
                "values": measured.get(check.metric, {}).get("values", []),
                "interval": measured.get(check.metric, {}).get("interval"),
            }
            for check in claim.checks
        ]
        result.append(
            {
                "id": claim.id,
                "kind": claim.kind,
                "verdict": verdict,
                "statement": claim.statement,
                "paper": claim.paper,
                "timed": claim.timed,
                "preset": claim.preset,
                "explanation": claim.explanation,
                "checks": checks,
            }
        )
    return result


def _answer(
    card: Card, entry: Mapping[str, Any] | None, claims: list[dict[str, Any]], source: str
) -> dict[str, Any]:
    import dataclasses

    from theses.cli._code import import_lines

    answer = dataclasses.asdict(card) | {"claims": claims, "verdicts_from": source}
    answer["imports"] = import_lines(card)
    answer["peer"] = (entry or {}).get("peer")
    answer["apply"] = f"theses apply {card.slug}" if card.apply else None
    return answer


def _page(
    card: Card, entry: Mapping[str, Any] | None, claims: list[dict[str, Any]], source: str
) -> list[Line]:
    from theses.catalogue import CLAIM_KINDS
    from theses.cli._code import import_lines
    from theses.cli.output import CODE, VERDICT_STYLES
    from theses.resources import install_lines

    lines: list[Line] = [[(card.name, "bold"), (f" ({card.slug}), theses.{card.package}", "")]]
    lines += [card.summary, f"{card.paper.title.rstrip('.')}. {card.paper.venue}, {card.paper.label}."]

    def section(title: str, content: list[Line]) -> None:
        if content:
            lines.extend(["", [(title, "bold underline")], *content])

    section("Use it when", [f"  {card.use_when}"])
    section("Not when", [f"  {card.not_when}"])
    section("Instead of", [f"  {card.instead_of}"])
    section("In Python", [[("  ", ""), (line, CODE)] for line in import_lines(card)])
    if card.apply:
        section("On your files", [[("  ", ""), (f"theses apply {card.slug} --help", CODE)]])
    needs: list[Line] = [f"  {line}" for line in install_lines(card.extras, ())]
    needs += [f"  {line}  (its study)" for line in install_lines(card.study_extras, card.carriers)]
    section(
        "Needs beyond the core",
        [*needs, f"  theses doctor {card.slug} says what is missing"] if needs else [],
    )

    kinds = sorted({claim["kind"] for claim in claims}, key=list(CLAIM_KINDS).index)
    lines.extend(["", [("Claims", "bold underline"), (f"  ({source})", "")]])
    width = max(len(claim["id"]) for claim in claims)
    for claim in claims:
        verdict = claim["verdict"]
        lines.append(
            [
                (f"  {claim['id']:<{width}}", "bold"),
                (f"  {claim['kind']:<8}  ", ""),
                (verdict, VERDICT_STYLES.get(verdict, "")),
            ]
        )
        pad = " " * (width + 4)
        lines.append(f"{pad}{claim['statement']}")
        lines.append([(f"{pad}paper: {claim['paper']}", "dim")])
        lines += [[(f"{pad}{_check_line(check)}", "dim")] for check in claim["checks"]]
        if claim["explanation"] and verdict not in ("holds", "not measured"):
            lines.append(f"{pad}why: {claim['explanation']}")
    lines += [[(f"  {kind}: {CLAIM_KINDS[kind]}", "dim")] for kind in kinds]

    peer = (entry or {}).get("peer")
    if peer:
        target = f", target {peer['target']}" if peer["target"] else ""
        section("Speed", [f"  {peer['ratio']:.3g} times as fast as {peer['name']} ({peer['size']}{target})"])
    section("Observed, not judged", [f"  {item.statement} ({item.metric})" for item in card.observations])
    section("Deviations from the paper's setting", [f"  {item}" for item in card.deviations])
    section("Out of reach here", [f"  {item.statement} Why: {item.why}" for item in card.out_of_reach])
    return lines


def _check_line(check: Mapping[str, Any]) -> str:
    line = f"{check['metric']} {check['bound']} ({check['aggregate']})"
    values = [f"{v[0]} of {v[1]}" if isinstance(v, list) else _short(v) for v in check["values"]]
    if not values:
        return line
    if len(values) > _MOST_VALUES:
        values = [*values[:_MOST_VALUES], f"... ({len(values)} in all)"]
    line += f": {', '.join(values)}"
    if check["interval"]:
        line += f"; 90 % interval [{_short(check['interval'][0])}, {_short(check['interval'][1])}]"
    return line


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, (int, float)) else str(value)
