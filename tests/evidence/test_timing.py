from __future__ import annotations

import json
import time
from collections import Counter

import pytest

from theses.evidence import Comparison, interleave


def test_functions_are_called_in_turn_in_alternating_order() -> None:
    calls: list[str] = []
    interleave([lambda: calls.append("a"), lambda: calls.append("b")], repeats=4, warmup=2)
    rounds = ["".join(calls[i : i + 2]) for i in range(0, len(calls), 2)]
    assert len(rounds) == 6
    # Neither side always runs in the other's wake.
    assert all(rounds[i] == rounds[i + 1][::-1] for i in range(5))


@pytest.mark.parametrize(("repeats", "warmup"), [(1, 0), (3, 1), (5, 2)])
def test_warmup_is_run_but_not_counted(repeats: int, warmup: int) -> None:
    calls: Counter[str] = Counter()
    times = interleave([lambda: calls.update("a"), lambda: calls.update("b")], repeats, warmup)
    assert [len(of_one) for of_one in times] == [repeats, repeats]
    assert calls == {"a": repeats + warmup, "b": repeats + warmup}


def test_times_belong_to_their_functions() -> None:
    short, long = interleave([lambda: time.sleep(0.001), lambda: time.sleep(0.02)], repeats=3, warmup=0)
    assert min(long) >= 0.02
    assert 0.001 <= min(short) < 0.02


def test_a_slow_first_call_is_taken_by_the_warmup() -> None:
    calls: list[int] = []

    def compiled_at_first() -> None:
        calls.append(0)
        time.sleep(0.05 if len(calls) == 1 else 0)

    (times,) = interleave([compiled_at_first], repeats=3)
    assert max(times) < 0.05


def test_nothing_to_time() -> None:
    assert interleave([]) == []


def test_ratio_is_of_medians_and_above_one_if_we_are_faster() -> None:
    comparison = Comparison(
        peer="ot.emd2",
        size="n = 4,000",
        ours_s=[1.0, 1.2, 50.0],
        peer_s=[12.0, 11.0, 13.0],
        target=">= 10",
        quality="Spearman 0.9",
    )
    assert comparison.ratio == pytest.approx(10.0)
    stored = json.loads(json.dumps(comparison.to_dict()))
    assert stored == {
        "peer": "ot.emd2",
        "size": "n = 4,000",
        "ours_s": [1.0, 1.2, 50.0],
        "peer_s": [12.0, 11.0, 13.0],
        "ratio": pytest.approx(10.0),
        "target": ">= 10",
        "quality": "Spearman 0.9",
        "peak_mb": None,
    }
