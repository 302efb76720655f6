"""The guided tour behind ``make demo``: two real data files compared, then a paper's claims judged.

Writes into ``.theses/demo`` and runs the commands that a user would type.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from theses.datasets.images import load_mnist5k

FOLDER = Path(".theses") / "demo"


def table(pixels: NDArray[np.float64], labels: NDArray[np.int64]) -> pl.DataFrame:
    columns = {f"pixel_{i:02d}": pixels[:, i] for i in range(pixels.shape[1])}
    return pl.DataFrame({**columns, "target": labels})


def write_files() -> tuple[Path, Path]:
    """Handwritten digits from two sources in one format: 8 x 8 pixels between 0 and 16, and the digit."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    images, labels = load_mnist5k()
    chosen = np.random.default_rng(0).choice(len(labels), 1500, replace=False)
    padded = np.pad(images[chosen] / 255.0 * 16, ((0, 0), (2, 2), (2, 2)))
    pooled = padded.reshape(-1, 8, 4, 8, 4).mean(axis=(2, 4)).round(2)
    mnist, uci = FOLDER / "mnist.csv", FOLDER / "uci_digits.parquet"
    table(pooled.reshape(-1, 64), labels[chosen]).write_csv(mnist)
    digits = load_digits()
    table(digits.data, digits.target.astype(np.int64)).write_parquet(uci)
    return mnist, uci


def type_in(*arguments: str) -> None:
    print(f"\n$ theses {shlex.join(arguments)}", flush=True)
    subprocess.run([sys.executable, "-m", "theses", *arguments], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="standard", help="preset of the reproduction")
    preset = parser.parse_args().preset
    start = time.perf_counter()
    print("Handwritten digits from two sources, MNIST and UCI: how far apart are they, labels included?")
    mnist, uci = write_files()
    type_in("apply", "dataset-distance", str(mnist), str(uci), "--label", "target")
    print("\nDoes the paper's method keep its promises on this machine?")
    type_in("reproduce", "dataset-distance", "--preset", preset, "--store", str(FOLDER / "results.sqlite"))
    print(
        f"\nThat took {time.perf_counter() - start:.0f} s. What to type next (put .venv/bin on your PATH):\n"
        "  theses list                           the methods\n"
        '  theses find "how far apart" mine.csv  the method for a problem and a file\n'
        "  theses show s-otdd                    what it is for, when not, and every claim\n"
        "  theses apply dataset-distance A.csv B.csv --label COLUMN\n"
        f"  theses results --store {FOLDER / 'results.sqlite'}   the verdicts again"
    )


if __name__ == "__main__":
    main()
