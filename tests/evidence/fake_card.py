"""A card whose study is one of the small ones in ``tests/evidence/conftest.py``."""

from __future__ import annotations

from dataclasses import dataclass, replace

from theses.catalogue import Card, Check, Claim, Observation, OutOfReach, Paper


@dataclass(frozen=True)
class FakeCard(Card):
    """Card that names its modules freely."""

    study_module: str = "study_good"

    @property
    def module(self) -> str:
        return self.study_module

    @property
    def study(self) -> str:
        return self.study_module


def claim(
    bound: str = ">= 0",
    *,
    name: str = "C1",
    preset: str = "standard",
    timed: bool = False,
    metric: str = "value",
) -> Claim:
    return Claim(name, "same", "It is so.", "Table 1", (Check(metric, bound, "mean"),), timed, preset)


def fake_card(study: str = "study_good", *claims: Claim, **changes: object) -> FakeCard:
    card = FakeCard(
        slug=study.replace("_", "-"),
        package="fake",
        name="Fake",
        summary="A fake.",
        have=("table",),
        want=("distance",),
        use_when="Testing.",
        not_when="Not testing.",
        instead_of="Nothing.",
        paper=Paper("On fakes", "ICML 2025", "2501.00001"),
        api=("theses.fake:fake",),
        seeds=3,
        claims=claims or (claim(),),
        deviations=("It is a fake.",),
        observations=(Observation("The seed.", "seed"),),
        out_of_reach=(OutOfReach("The real thing.", "It is a fake."),),
        study_module=study,
    )
    return replace(card, **changes)  # type: ignore[arg-type]
