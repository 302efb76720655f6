"""``theses apply equal-share``: a symmetric game in, what secures the fair share out."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from theses.datasets.files import FileHead
    from theses.games.equal_share import Learner, Population, SymmetricGame

__all__ = ["apply", "suggest"]

_DELTA = 0.05
_KINDS = {"hedge": "Hedge", "saol": "SAOL-Hedge", "cloning": "cloning"}
_JSON_BYTES = 1 << 20  # what a description is looked into for, when files are guessed at


def apply(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="GAME.json",
            help='The game: {"game": "majority-vote"} and its parameters, {"n_players": 3, "payoffs": '
            '[{"action": 0, "others": [2, 0], "payoff": 0.5}, ...]}, or {"tensor": ...} with the payoffs of '
            'all players; with "population": [...] the common mixed strategy of the others.',
        ),
    ],
    opponents: Annotated[
        Path | None,
        typer.Option(
            help="What the others have played: a column for each of them, a row for each round, actions by "
            "number or name."
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=2, help="Rounds to be played against the population.")] = 10_000,
    variation: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Total variation of the others' strategy in all rounds; estimated from --opponents, else 0.",
        ),
    ] = None,
    want: Annotated[
        str, typer.Option(help="safe: the share for sure; exploit: more where it can be had.")
    ] = "exploit",
    seed: Annotated[int, typer.Option(min=0, help="Seed of all draws.")] = 0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the table of the learners here.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Which learner secures the fair share C/n of a symmetric constant-sum game, and what does self-play get?

    A game that is not symmetric or not constant-sum is refused with the first profile that shows it.
    """
    import numpy as np
    import polars as pl

    from theses.cli.output import emit
    from theses.datasets.files import FileError, write_table
    from theses.games.equal_share import SymmetricGame, recommend

    description = _read(file)
    try:
        game = SymmetricGame.from_dict(
            {key: value for key, value in description.items() if key != "population"}
        )
        population = _population(game, description.get("population"))
        game.check()
    except (TypeError, ValueError) as error:
        raise FileError(f"{file}: {error}") from None
    actions = None if opponents is None else _read_actions(opponents, game)
    answer: dict[str, Any] = {
        "players": game.n_players,
        "actions": list(game.action_names),
        "symmetric": True,
        "constant_sum": game.total,
        "fair_share": game.share,
        "payoff_range": game.payoff_range,
        "exact": game.exact,
    }
    lines = [
        f"{game.n_players} players, actions {', '.join(game.action_names)}: symmetric, payoffs add up to "
        f"{game.total:g}",
        f"fair share           {game.share:.4g}; payoffs at most {game.payoff_range:.4g} from it",
    ]
    if actions is not None:
        found = _estimate(actions, game.n_actions)
        rounds = len(actions)
        if population is None:
            population = found["population"]
        variation = found["variation"] if variation is None else variation
        answer["observed"] = found
        lines += [
            "",
            f"observed             {rounds:,} rounds; the others' actions in all: "
            + _mixed(game, np.asarray(found["population"]), np.asarray(found["std_errors"])),
            f"their drift          total variation {found['variation']:.3g} between {found['blocks']} blocks "
            f"({found['raw_variation']:.3g}, of which chance alone makes {found['chance_variation']:.3g}); "
            "an estimate from below",
        ]
    if population is None:
        population = np.full(game.n_actions, 1 / game.n_actions)
        lines += ["", "no population given: the uniform one is taken"]
    population = np.asarray(population, dtype=np.float64)
    drift = 0.0 if variation is None else variation
    values = game.action_values(population, random_state=seed)
    best = int(values.argmax())
    worst, value = game.exploiter(population, random_state=seed) if game.exact else (None, None)
    advice = recommend(drift, rounds, game.n_actions, _want(want))
    learners = _learners(game, population, actions, rounds, drift, seed)
    yardstick = _yardstick(game, population)
    answer |= {
        "population": population,
        "action_values": values,
        "best_response": game.action_names[best],
        "best_response_value": float(values[best]),
        "exploitability": value,
        "exploiter": worst,
        "rounds": rounds,
        "variation": drift,
        "delta": _DELTA,
        "recommended": advice,
        "learners": learners,
        "yardstick": yardstick,
    }
    lines += [
        "",
        f"against              {_mixed(game, population)}",
        "action values        "
        + ", ".join(f"{name} {v:+.4g}" for name, v in zip(game.action_names, values, strict=True))
        + (" (exact)" if game.exact else " (100,000 draws)"),
        f"best response        {game.action_names[best]}, {values[best]:+.4g}",
    ]
    if worst is not None:
        lines.append(
            f"the population's own strategy can be pressed to {value:+.4g}, by {_mixed(game, worst)}"
        )
    source = "replayed on what was observed" if actions is not None else "played against the population"
    lines += [
        "",
        f"learners, {rounds:,} rounds {source}, total variation {drift:.3g}",
        *(
            f"  {_KINDS[entry['learner']]:<12} earned {entry['payoff']:+.4g}{_spread(entry)}; not below "
            f"{entry['guaranteed']:+.4g} with probability {1 - _DELTA:g}"
            + (" (order, constant 1)" if entry["learner"] == "saol" else "")
            + f" ({entry['seconds']:.2g} s)"
            for entry in learners
        ),
        f"take                 {_KINDS[advice]} (--want {want}); the bounds hold if the others share one "
        "strategy that does not look at yours",
        "",
        "what self-play gets against the same population",
        *(
            f"  {entry['from']:<22} {entry['payoff']:+.4g}, {'below' if entry['misses'] else 'not below'} "
            f"the share ({entry['steps']:,} steps, {entry['seconds']:.2g} s)"
            for entry in yardstick
        ),
    ]
    python = _python(file, population, rounds, advice, seed, opponents)
    answer["python"] = python
    text = "\n".join([*lines, "", "the same in Python", *(f"  {line}".rstrip() for line in python)])
    if output is not None:
        write_table(output, pl.DataFrame(learners))
        answer["written"] = str(output)
        text += f"\n\nwritten: {output}"
    emit(answer, as_json=as_json, text=text)


def suggest(files: Sequence[FileHead]) -> str | None:
    """Command for a game in JSON, alone or with a table of the opponents' actions.

    Parameters
    ----------
    files : sequence of FileHead
        What the files hold.

    Returns
    -------
    str or None
        The command, None if they do not fit.
    """
    games = [head for head in files if head.path.suffix.lower() == ".json"]
    tables = [head for head in files if head.kind == "table"]
    if len(games) != 1 or len(files) != len(games) + len(tables) or len(tables) > 1:
        return None
    path = games[0].path
    try:
        if path.stat().st_size > _JSON_BYTES:
            return None
        description = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, RecursionError, ValueError):
        return None
    if not isinstance(description, dict) or not {"game", "payoffs", "tensor"} & description.keys():
        return None
    command = f"theses apply equal-share {shlex.quote(str(path))}"
    return command + "".join(f" --opponents {shlex.quote(str(head.path))}" for head in tables)


def _read(file: Path) -> dict[str, Any]:
    from theses.datasets.files import FileError, read_lines

    text = "\n".join(read_lines(file))
    try:
        description = json.loads(text)
    except json.JSONDecodeError as error:
        raise FileError(f"{file}: line {error.lineno}: no JSON ({error.msg})") from None
    except (RecursionError, ValueError) as error:  # nested too deep, or a number of thousands of digits
        raise FileError(f"{file}: no JSON that can be read ({error})") from None
    if not isinstance(description, dict):
        raise FileError(f"{file}: expected a JSON object with 'game', 'payoffs' or 'tensor'")
    return description


def _population(game: SymmetricGame, given: Any) -> NDArray[np.float64] | None:
    from theses.games.equal_share import StationaryPopulation

    if given is None:
        return None
    y = StationaryPopulation(given).y
    if y.shape != (game.n_actions,):
        raise ValueError(f"population must have {game.n_actions} probabilities, got {given}")
    return y


def _read_actions(file: Path, game: SymmetricGame) -> NDArray[np.int64]:
    import numpy as np

    from theses.datasets.files import FileError, read_table

    frame = read_table(file)
    if frame.width != game.n_players - 1:
        raise FileError(
            f"{file}: expected {game.n_players - 1} columns, one for each of the others, got {frame.width}: "
            f"{', '.join(frame.columns[:6])}"
        )
    if frame.height < 2:
        raise FileError(f"{file}: expected at least 2 rounds, got {frame.height}")
    names = {name: index for index, name in enumerate(game.action_names)}
    numbers = {str(index): index for index in range(game.n_actions)}
    known = {**numbers, **names}
    actions = np.empty((frame.height, frame.width), dtype=np.int64)
    for j, column in enumerate(frame.columns):
        for i, cell in enumerate(frame[column].to_list()):
            index = known.get(_word(cell))
            if index is None:
                raise FileError(
                    f"{file}: column {column!r}, row {i + 1}: expected one of {', '.join(known)}, "
                    f"got {cell!r}"
                )
            actions[i, j] = index
    return actions


def _word(cell: Any) -> str:
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell).strip()


def _estimate(actions: NDArray[np.int64], n_actions: int) -> dict[str, Any]:
    """The others' law over all rounds, and how much it moves from block to block beyond chance."""
    import numpy as np

    onehot = (actions[:, :, None] == np.arange(n_actions)).mean(axis=1)
    law = onehot.mean(axis=0)
    blocks = int(np.clip(len(actions) // 100, 2, 20))
    parts = np.array_split(onehot, blocks)
    laws = np.array([part.mean(axis=0) for part in parts])
    raw = float(np.abs(np.diff(laws, axis=0)).sum())
    # Means of two blocks with one law differ by a nearly normal amount, of mean size sqrt(2 / pi) sigma.
    draws = np.array([len(part) for part in parts]) * actions.shape[1]
    spread = laws * (1 - laws) / draws[:, None]
    sigma = np.sqrt(spread[1:] + spread[:-1])
    chance = float(np.sqrt(2 / np.pi) * sigma.sum())
    # Its own spread, so that a standing population is not taken for a moving one.
    doubt = float(2 * np.sqrt(1 - 2 / np.pi) * np.sqrt((sigma**2).sum() * n_actions / 2))
    return {
        "population": law.tolist(),
        "std_errors": np.sqrt(law * (1 - law) / actions.size).tolist(),
        "blocks": blocks,
        "raw_variation": raw,
        "chance_variation": chance,
        "variation": raw - chance if raw > chance + doubt else 0.0,
    }


def _want(want: str) -> Any:
    if want not in ("safe", "exploit"):
        raise ValueError(f"--want must be safe or exploit, got {want!r}")
    return want


def _learners(
    game: SymmetricGame,
    population: NDArray[np.float64],
    actions: NDArray[np.int64] | None,
    rounds: int,
    drift: float,
    seed: int,
) -> list[dict[str, Any]]:
    import numpy as np

    from theses.games.equal_share import (
        BehaviorCloning,
        Hedge,
        RecordedPopulation,
        SAOLHedge,
        StationaryPopulation,
        equal_share_bound,
        play,
    )

    opponents: Population = (
        StationaryPopulation(population) if actions is None else RecordedPopulation(actions, game.n_actions)
    )
    learners: dict[Any, Learner] = {
        "hedge": Hedge(game.n_actions, horizon=rounds),
        "saol": SAOLHedge(game.n_actions),
        "cloning": BehaviorCloning(game.n_actions),
    }
    found = []
    for kind, learner in learners.items():
        start = time.perf_counter()
        played = play(game, learner, opponents, rounds, random_state=seed, n_runs=8)
        seconds = time.perf_counter() - start
        # Powers of delta put the luck of the opponents' draws into the term of chance, and cloning's first,
        # blind round counts as a change of one.
        power, blind = {"hedge": (2, 0), "saol": (1, 0), "cloning": (4, 1)}[kind]
        bound = equal_share_bound(
            kind,
            rounds,
            game.n_actions,
            _DELTA**power,
            drift + blind,
            payoff_range=game.payoff_range,
        )
        average = played.average_payoff
        found.append(
            {
                "learner": kind,
                "payoff": float(average.mean()),
                "std_error": float(average.std(ddof=1) / np.sqrt(len(average))),
                # Nobody can lose more than B.
                "guaranteed": game.share - min(bound, game.payoff_range),
                "seconds": seconds,
            }
        )
    return found


def _yardstick(game: SymmetricGame, population: NDArray[np.float64]) -> list[dict[str, Any]]:
    import numpy as np

    from theses.games.equal_share import self_play

    if not game.exact:
        return []
    found = []
    for name, init in (
        ("from scratch", np.full(game.n_actions, 1 / game.n_actions)),
        ("from the population", population),
    ):
        start = time.perf_counter()
        # A tenth of the usual steps, with steps that are longer by the root of ten: seconds at most.
        result = self_play(game, init, max_steps=10_000)
        seconds = time.perf_counter() - start
        payoff = game.expected_payoff(result.policy, population)
        found.append(
            {
                "from": name,
                "policy": result.policy,
                "payoff": payoff,
                "misses": payoff < game.share - 1e-9,
                "steps": result.n_steps,
                "converged": bool(result.converged),
                "seconds": seconds,
            }
        )
    return found


def _mixed(game: SymmetricGame, y: NDArray[np.float64], errors: NDArray[np.float64] | None = None) -> str:
    parts = []
    for index, name in enumerate(game.action_names):
        if y[index] >= 5e-5:
            spread = "" if errors is None else f" (s.e. {errors[index]:.2g})"
            parts.append(f"{name} {y[index]:.4g}{spread}")
    return ", ".join(parts)


def _spread(entry: dict[str, Any]) -> str:
    return f" (s.e. {entry['std_error']:.2g})"


def _python(
    file: Path, population: NDArray[np.float64], rounds: int, advice: str, seed: int, opponents: Path | None
) -> list[str]:
    maker = {
        "hedge": f"Hedge(game.n_actions, horizon={rounds})",
        "saol": "SAOLHedge(game.n_actions)",
        "cloning": "BehaviorCloning(game.n_actions)",
    }[advice]
    others, extra = "StationaryPopulation(population)", []
    if opponents is not None:
        others = "RecordedPopulation(actions, game.n_actions)"
        extra = [
            'known = {f"{i}{end}": i for i in range(game.n_actions) for end in ("", ".0")}',
            "known |= {name: i for i, name in enumerate(game.action_names)}",
            f"table = read_table({str(opponents)!r})",
            "actions = [[known[str(cell).strip()] for cell in row] for row in table.rows()]",
        ]
    return [
        "import json",
        "from pathlib import Path",
        "",
        *(["from theses.datasets.files import read_table"] if extra else []),
        "from theses.games.equal_share import "
        f"{maker.split('(')[0]}, {others.split('(')[0]}, SymmetricGame, play",
        "",
        f"game = SymmetricGame.from_dict(json.loads(Path({str(file)!r}).read_text()))",
        f"population = {population.round(12).tolist()!r}",
        "print(game.action_values(population), game.exploitability(population))",
        *extra,
        f"learner = {maker}",
        f"print(play(game, learner, {others}, {rounds}, random_state={seed}, n_runs=8).summary())",
    ]
