"""Ways to spoil the made-up method, each with the check that has to see it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.conformance import fake

METHOD = "src/toyhouse/toys/shift.py"
STUDY = "src/toyhouse/studies/toys/shift.py"
TESTS = "toytests/toys/test_shift.py"
APPLY = "src/toyhouse/cli/apply/shift.py"

SLOW = {
    STUDY: (
        "    found = ctx",
        "    end = time.process_time() + 0.3\n    while time.process_time() < end: pass\n    found = ctx",
    )
}


class Fault(NamedTuple):
    """One way to spoil the made-up library, the check that has to see it, and what it has to say."""

    check: str
    says: str
    edits: Mapping[str, tuple[str, str]] = {}
    files: Mapping[str, str | None] = {}
    card: Mapping[str, Any] = {}


def published(verdict: str, identifier: str = "C1") -> dict[str, str | None]:
    claims = {identifier: {"verdict": verdict}}
    return {"docs/evidence.json": json.dumps({"methods": {"shift": {"claims": claims}}})}


def claims(**changed: Any) -> dict[str, Any]:
    return {"claims": [{**fake.CARD["claims"][0], **changed}, fake.CARD["claims"][1]]}


FAULTS = {
    "no study": Fault(
        "parts", "the study is missing: src/toyhouse/studies/toys/shift.py", files={STUDY: None}
    ),
    "no tests": Fault("parts", "the test module is missing", files={TESTS: None}),
    "no example": Fault("parts", "the example is missing", files={"toyexamples/toys/shift.py": None}),
    "no apply": Fault("parts", "the apply command is missing", files={APPLY: None}),
    "no benchmark function": Fault(
        "parts", "defines no function benchmark", files={"toybenchmarks/toys/shift.py": "ROWS = []\n"}
    ),
    "no suggest": Fault("parts", "defines no function suggest", edits={APPLY: ("def suggest", "def advise")}),
    "broken benchmark": Fault(
        "parts", "cannot be imported", files={"toybenchmarks/toys/shift.py": "import nothing_like_it\n"}
    ),
    "unknown extra": Fault("dependencies", "extra 'graphs' is not", card={"study_extras": ["graphs"]}),
    "unknown carrier": Fault("dependencies", "carrier 'irtorch' is not", card={"carriers": ["irtorch"]}),
    "two sentences": Fault("text", "must be one sentence", card={"summary": "A mean. Another mean."}),
    "no full stop": Fault("text", "must be one sentence", card={"summary": "A mean"}),
    "small letter": Fault("text", "capital letter", card={"summary": "a mean."}),
    "empty deviation": Fault("text", "deviations[1] is empty", card={"deviations": ["One.", ""]}),
    "empty statement": Fault("text", "claims[0].statement is empty", card=claims(statement="")),
    "api of others": Fault("text", "api names nothing of", card={"api": ["theses.toys.other:difference"]}),
    "apply of others": Fault("text", "apply must be", card={"apply": "theses.cli.apply.other"}),
    "unexplained": Fault("explanations", "claim C1 is published as 'fails'", files=published("fails")),
    "hardly explained": Fault(
        "explanations",
        "a few sentences",
        files=published("undecided"),
        card=claims(explanation="Too few draws."),
    ),
    "claim withdrawn": Fault("explanations", "has claim C9", files=published("holds", "C9")),
    "no planted mistake": Fault(
        "planted mistake", "plants no mistake", edits={TESTS: ("test_planted", "test")}
    ),
    "turns nothing": Fault(
        "planted mistake", "must end with _turns_", edits={TESTS: ("_turns_c1", "_turns_c7")}
    ),
    "heavy package": Fault(
        "light imports",
        "importing toyhouse.toys imports numpy, ",
        files={"src/toyhouse/toys/__init__.py": "import scipy.stats\nfrom toyhouse.toys import shift\n"},
    ),
    "heavy command": Fault(
        "light imports",
        "importing toyhouse.cli.apply.shift imports numpy, polars",
        edits={APPLY: ("import typer", "import typer, numpy, polars")},
    ),
    "changes at import": Fault(
        "import changes",
        "importing toyhouse.toys.shift: torch's default dtype changed from torch.float32 to torch.float64",
        edits={METHOD: ("__all__ =", "import torch\ntorch.set_default_dtype(torch.float64)\n__all__ =")},
    ),
    "api not there": Fault(
        "api", "has no distance", card={"api": ["theses.toys.shift:distance", *fake.CARD["api"]]}
    ),
    "api not in all": Fault(
        "api", "difference is not in __all__", edits={METHOD: ('"Reference", "difference"', '"Reference"')}
    ),
    "package without attributes": Fault(
        "api",
        "does not list shift",
        files={"src/toyhouse/toys/__init__.py": "def __dir__():\n    return []\n"},
    ),
    "no all": Fault("all", "has no __all__", edits={METHOD: ("__all__ =", "PUBLIC =")}),
    "all too long": Fault(
        "all",
        "names distance, which is not there",
        edits={METHOD: ('"difference"]', '"difference", "distance"]')},
    ),
    "no docstring": Fault(
        "all",
        "Reference has no docstring",
        edits={METHOD: ('class Reference:\n    """', 'class Reference:\n    f"""')},
    ),
    "parameter not documented": Fault(
        "docstrings",
        "difference: PR01 Parameters {'scale'} not documented",
        edits={METHOD: ("    scale : float, default=1.0\n        Unit of both.\n", "")},
    ),
    "unknown parameter": Fault(
        "docstrings",
        "PR02 Unknown parameters {'c'}",
        edits={METHOD: ("    b : ndarray of", "    c : ndarray of")},
    ),
    "no returns": Fault(
        "docstrings",
        "Reference.distance: RT01",
        edits={
            METHOD: (
                "        Returns\n        -------\n        float\n            Difference of the means.\n",
                "",
            )
        },
    ),
    "no example in the docstring": Fault(
        "docstrings",
        "Centre: EX01",
        edits={
            METHOD: (
                "    Examples\n    --------\n    >>> Centre().fit_transform([[1.0], [3.0]]).tolist()\n"
                "    [[-1.0], [1.0]]\n",
                "",
            )
        },
    ),
    "no source": Fault(
        "docstrings",
        "difference: no References section",
        edits={METHOD: ("    References\n    ----------\n    Section 1, equation (1).\n", "")},
    ),
    "method without docstring": Fault(
        "docstrings",
        "Reference.distance: GL08",
        edits={METHOD: ('"""Distance of other values.', 'f"""Distance of other values.')},
    ),
    "method without def": Fault(
        "docstrings",
        "Reference.median: numpydoc finds no def",
        edits={
            METHOD: (
                "    def distance(",
                "    median = lambda self: 0.0\n    median.__doc__ = 'None.'\n\n    def distance(",
            )
        },
    ),
    "metric not delivered": Fault(
        "delivery", "metric zero of the card is not", edits={STUDY: ('"zero": 0.0, ', "")}
    ),
    "metric not finite": Fault(
        "delivery", "metric zero must be finite", edits={STUDY: ('"zero": 0.0', '"zero": float("inf")')}
    ),
    "share not counted": Fault(
        "delivery",
        "metric close is a share",
        edits={STUDY: ("Count(sum(abs(e) < 1 for e in found), 4)", "0.5")},
    ),
    "mean counted": Fault(
        "delivery", "metric zero is no share", edits={STUDY: ('"zero": 0.0', '"zero": Count(0, 1)')}
    ),
    "no measurement": Fault(
        "delivery",
        "must return a Measurement",
        edits={STUDY: ("return Measurement(", "return dict(")},
    ),
    "study fails": Fault(
        "delivery", "ZeroDivisionError", edits={STUDY: ("    found = ctx", "    1 / 0\n    found = ctx")}
    ),
    "slow study": Fault("delivery", "a smoke unit may take", edits=SLOW),
    "no stage": Fault(
        "delivery",
        "stores no stage",
        edits={STUDY: ("    found = ctx", "    ctx.stage = lambda _, arm: arm()\n    found = ctx")},
    ),
    "stage twice": Fault(
        "delivery", "asked for twice", edits={STUDY: ('"seconds", seconds', '"errors", errors')}
    ),
    "no progress": Fault("delivery", "tells no progress", edits={STUDY: ("ctx.progress(", "print(")}),
    "wrong progress": Fault(
        "delivery", "a share of the unit", edits={STUDY: ("progress(1.0", "progress(100.0")}
    ),
    "fresh randomness": Fault(
        "repeat",
        "metric error: ",
        edits={
            STUDY: ('rng = ctx.rng("errors")', "import numpy as np\n        rng = np.random.default_rng()")
        },
    ),
    "seed not used": Fault(
        "repeat",
        "the seed is not used",
        edits={
            STUDY: ('rng = ctx.rng("errors")', "import numpy as np\n        rng = np.random.default_rng(0)")
        },
    ),
    "clock in an untimed claim": Fault(
        "repeat", "metric zero: ", edits={STUDY: ('"zero": 0.0', '"zero": time.perf_counter_ns() % 1000')}
    ),
    "stages share a generator": Fault(
        "repeat",
        "metric error: ",
        edits={
            STUDY: (
                "    def errors():",
                '    shared = ctx.rng("shared")\n    ctx.stage("other", lambda: shared.normal())\n'
                "    ctx.rng = lambda name: shared\n\n    def errors():",
            )
        },
    ),
    "measured outside of a stage": Fault(
        "resume",
        "metric seconds: ",
        edits={STUDY: ('timed = ctx.stage("seconds", seconds)', "timed = seconds()")},
    ),
    "stage under a fresh name": Fault(
        "resume",
        "is computed anew",
        edits={
            STUDY: ('ctx.stage("seconds", seconds)', 'ctx.stage(f"seconds {time.perf_counter()}", seconds)')
        },
    ),
    "study imports the method": Fault(
        "figures",
        "No module named 'toyhouse.toys.shift'",
        edits={STUDY: ("import polars as pl\n", "import polars as pl\nimport toyhouse.toys.shift\n")},
    ),
    "study imports an extra": Fault(
        "figures",
        "No module named 'rapidfuzz'",
        edits={STUDY: ("import polars as pl\n", "import polars as pl\nimport rapidfuzz\n")},
    ),
    "figures use scipy": Fault(
        "figures",
        "No module named 'scipy'",
        edits={STUDY: ("import altair as alt", "import altair as alt, scipy")},
    ),
    "no chart": Fault("figures", "draws nothing", edits={STUDY: ("    return {", "    return {} and {")}),
    "wrong chart": Fault(
        "figures",
        "expected an Altair chart, got int",
        edits={STUDY: ("    return {", '    return {"n": 1, ')},
    ),
    "chart of a wrong column": Fault("figures", "eror", edits={STUDY: ('y="error"', 'y="eror"')}),
    "chart of nonsense": Fault("figures", "Error", edits={STUDY: ('y="error"', 'y=alt.Y("error", scale=3)')}),
    "chart from the web": Fault(
        "figures",
        "from a URL",
        edits={STUDY: ("    return {", '    return {"web": alt.Chart("a.csv").mark_bar(), ')},
    ),
    "table with seeds": Fault(
        "figures", "has a column 'seed'", edits={STUDY: ('"error": found})', '"error": found, "seed": 0})')}
    ),
    "tables do not stack": Fault(
        "figures", "cannot be stacked", edits={STUDY: ('"draw":', '"a" if ctx.seed else "draw":')}
    ),
    "example fails": Fault(
        "example", "exit status 1", files={"toyexamples/toys/shift.py": "raise SystemExit('no data')\n"}
    ),
    "example is silent": Fault("example", "prints nothing", files={"toyexamples/toys/shift.py": "x = 1\n"}),
    "example is slow": Fault(
        "example",
        "the example may take",
        files={
            "toyexamples/toys/shift.py": "import time\nprint(1)\nwhile time.process_time() < 0.3:\n    pass\n"
        },
    ),
    "estimator breaks a rule": Fault(
        "estimators",
        "Centre: check_dont_overwrite_parameters fails",
        edits={METHOD: ("        return self\n", "        self.extra = 1\n        return self\n")},
    ),
    "excuse for nothing": Fault(
        "estimators",
        "check_fit1d is excused, but passes",
        edits={
            TESTS: (
                "import numpy as np\n",
                'import numpy as np\nEXCUSED = {"Centre": {"check_fit1d": "No."}}\n',
            )
        },
    ),
    "excuse of nobody": Fault(
        "estimators",
        "names Center, which is no estimator",
        edits={
            TESTS: (
                "import numpy as np\n",
                'import numpy as np\nEXCUSED = {"Center": {"check_fit1d": "No."}}\n',
            )
        },
    ),
    "excuse for no check": Fault(
        "estimators",
        "there is no such check",
        edits={
            TESTS: (
                "import numpy as np\n",
                'import numpy as np\nEXCUSED = {"Centre": {"check_fit9": "No."}}\n',
            )
        },
    ),
    "estimator without factory": Fault(
        "estimators", "add it to ESTIMATORS", edits={METHOD: ("keep: bool = False", "keep: bool")}
    ),
    "no calls": Fault("calls", "has no function calls()", edits={TESTS: ("def calls", "def all_calls")}),
    "function not covered": Fault(
        "calls",
        "add to calls() of toytests/toys/test_shift.py a Call('difference', make, arrays=('A', 'b',))",
        edits={TESTS: ('"difference",\n', '"Reference.distance",\n')},
    ),
    "method not covered": Fault(
        "calls",
        "Call('Centre.transform', make, arrays=('X',))",
        edits={TESTS: ('"Centre.transform"', '"Centre.fit"')},
    ),
    "constructor not covered": Fault(
        "calls",
        "Call('Reference', make, arrays=('values',))",
        edits={TESTS: ('"Reference",', '"Reference.distance",')},
    ),
    "parameter not covered": Fault(
        "calls", "Call('difference', make, arrays=('b',))", edits={TESTS: ('"A.1", "b")', '"A.1")')}
    ),
    "target that is not there": Fault(
        "calls", "nothing public goes by that name", edits={TESTS: ('"Centre.fit"', '"Centre.fitt"')}
    ),
    "paired with nothing": Fault(
        "calls", "paired names A.2", edits={TESTS: ('paired=("A.0", "A.1")', 'paired=("A.0", "A.2")')}
    ),
    "corruption that is not there": Fault(
        "calls",
        "known are nan",
        edits={TESTS: ('named={"A.1"', 'allowed={"b": ("negative",)}, named={"A.1"')},
    ),
    "valid call fails": Fault(
        "valid calls", "the valid call fails", edits={TESTS: ('"b": [0.0, 1.0]}),', '"b": []}),')}
    ),
    "call draws from the global state": Fault(
        "valid calls",
        "Centre.fit: NumPy's random state changed",
        edits={METHOD: ("        return self\n", "        np.random.rand()\n        return self\n")},
    ),
    "call sets threads": Fault(
        "valid calls",
        "torch's number of threads changed",
        edits={
            METHOD: (
                "        return self\n",
                "        import torch\n        torch.set_num_threads(3)\n        return self\n",
            )
        },
    ),
    "call silences warnings": Fault(
        "valid calls",
        "Centre.fit: warning filters changed",
        edits={
            METHOD: (
                "        return self\n",
                "        import warnings\n        warnings.simplefilter('once')\n        return self\n",
            )
        },
    ),
    "call changes the environment": Fault(
        "valid calls",
        "environment changed: TOY",
        edits={
            METHOD: (
                "        return self\n",
                "        import os\n        os.environ['TOY'] = 'yes'\n        return self\n",
            )
        },
    ),
    "NaN is taken": Fault(
        "bad input",
        "difference, b, NaN in one entry: not refused",
        edits={METHOD: ('check_array("b", b, ndim=1)', 'check_array("b", b, ndim=1, finite=False)')},
    ),
    "rank is not looked at": Fault(
        "bad input",
        "difference, b, one axis more: not refused",
        edits={METHOD: ('check_array("b", b, ndim=1)', 'check_array("b", b, ndim=(1, 2))')},
    ),
    "length is not looked at": Fault(
        "bad input",
        "difference, A.0, last row left out: the error does not name A",
        edits={METHOD: ('check_same_length({"A": values, "weights": weights})', "pass")},
    ),
    "error of another name": Fault(
        "bad input",
        "the error does not name b",
        edits={METHOD: ('check_array("b", b, ndim=1)', 'check_array("array", b, ndim=1)')},
    ),
    "error of another kind": Fault(
        "bad input",
        "Reference, values, no rows: wanted a ValueError or TypeError, got IndexError",
        edits={METHOD: ("        self.mean =", "        values[0]\n        self.mean =")},
    ),
    "allowed, but refused": Fault(
        "bad input",
        "Reference, values, NaN in one entry: allowed, but refused",
        edits={TESTS: ('arrays=("values",))', 'arrays=("values",), allowed={"values": ("nan",)})')},
    ),
    "array that is not there": Fault(
        "bad input",
        "Reference, value: cannot be spoilt",
        edits={TESTS: ('arrays=("values",)', 'arrays=("value",)')},
    ),
}
