import numpy as np
import pytest

from theses.datasets.uci import load_uci_german_credit, load_uci_realestate

NAME = "Real estate valuation data set.csv"


def estate(rows):
    header = "No,X1 transaction date,X2 house age,X3 distance,X4 stores,X5 latitude,X6 longitude,Y price"
    return "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n"


def test_real_estate_is_standardised_and_drops_the_row_number(tmp_path):
    rng = np.random.default_rng(0)
    table = rng.normal(5, 3, size=(20, 8))
    (tmp_path / NAME).write_text("\ufeff" + estate(table), encoding="utf-8")
    X, y = load_uci_realestate(tmp_path)
    np.testing.assert_allclose(X, (table[:, 1:7] - table[:, 1:7].mean(0)) / table[:, 1:7].std(0), atol=1e-9)
    np.testing.assert_allclose([y.mean(), y.std()], [0, 1], atol=1e-9)
    assert np.corrcoef(y, table[:, 7])[0, 1] == pytest.approx(1)


def test_german_credit_has_the_bad_ones_as_1(tmp_path):
    rng = np.random.default_rng(0)
    table = rng.integers(1, 9, size=(30, 25))
    table[:, -1] = rng.integers(1, 3, size=30)
    lines = ["   ".join(f"{value:3d}" for value in row) + " " for row in table]
    (tmp_path / "german.data-numeric").write_text("\n".join(lines) + "\n")
    X, y = load_uci_german_credit(tmp_path)
    assert X.shape == (30, 24) and y.tolist() == (table[:, -1] - 1).tolist()
    np.testing.assert_allclose(X.mean(axis=0), 0, atol=1e-9)


def test_bad_files_are_named_with_their_line(tmp_path):
    with pytest.raises(FileNotFoundError, match="valuation"):
        load_uci_realestate(tmp_path)
    with pytest.raises(FileNotFoundError, match="german"):
        load_uci_german_credit(tmp_path)
    good = [[1, 2, 3, 4, 5, 6, 7, 8], [2, 3, 4, 5, 6, 7, 8, 9]]
    for rows, words in (
        ([*good, [1, 2, 3]], "line 4: expected 8"),
        ([good[0], [2, 3, "x", 5, 6, 7, 8, 9]], "line 3: could not convert"),
        ([good[0], [2, 3, "nan", 5, 6, 7, 8, 9]], "line 3: expected 8 finite"),
        ([good[0]], "fewer than two rows"),
        ([good[0], good[0]], "constant"),
    ):
        (tmp_path / NAME).write_text(estate(rows))
        with pytest.raises(ValueError, match=words):
            load_uci_realestate(tmp_path)
    (tmp_path / "german.data-numeric").write_text(
        "\n".join(" ".join(map(str, range(i, i + 25))) for i in (1, 2))
    )
    with pytest.raises(ValueError, match="line 1: the class must be 1 or 2, got 25"):
        load_uci_german_credit(tmp_path)
