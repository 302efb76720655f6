"""``python -m theses.catalogue``: what those who add methods run in the root of a checkout.

``new PACKAGE/MODULE --name NAME --arxiv ID --title TITLE`` writes the skeletons of a method, and ``readme``
brings the README's table of methods up to date.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from theses.catalogue import readme, scaffold


def main() -> None:
    """Run one of the two."""
    parser = argparse.ArgumentParser(prog="python -m theses.catalogue")
    commands = parser.add_subparsers(dest="command", required=True)
    new = commands.add_parser("new", help="write the skeletons of a method, in the root of a checkout")
    new.add_argument("place", metavar="PACKAGE/MODULE", help="such as graphs/metric_mst")
    new.add_argument("--name", required=True, help="the paper's own name for the method")
    new.add_argument("--arxiv", required=True, metavar="ID", help="such as 2501.18901")
    new.add_argument("--title", required=True, help="title of the paper")
    table = commands.add_parser("readme", help="bring the README's table of methods up to date")
    table.add_argument("root", nargs="?", type=Path, default=Path(), help="root of the checkout")
    given = parser.parse_args()
    if given.command == "readme":
        readme.main(given.root)
        return
    try:
        method = scaffold.NewMethod(given.place, given.name, given.arxiv, given.title)
        written, steps = scaffold.write(Path(), method)
    except ValueError as error:
        new.error(str(error))
    numbered = [f"{number}. {step}" for number, step in enumerate(steps, start=1)]
    sys.stdout.write("\n".join(["Written:", *(f"  {path}" for path in written), "Next:", *numbered]) + "\n")


if __name__ == "__main__":
    main()
