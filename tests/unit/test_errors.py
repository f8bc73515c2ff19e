from __future__ import annotations

import pickle

import pytest

from slurmmiles import errors
from slurmmiles.errors import SlurmmilesError, did_you_mean

EXIT_CODES = {
    "BadInput": 2,
    "MissingTool": 2,
    "UnfitNodes": 3,
    "SlurmRefused": 4,
    "RunFailed": 5,
    "RunTimedOut": 6,
}


def test_every_error_has_the_exit_code_of_the_contract() -> None:
    kinds = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, SlurmmilesError)
    }
    assert {n: k.exit_code for n, k in kinds.items() if n != "SlurmmilesError"} == EXIT_CODES


def test_a_sentence_says_where_what_and_what_to_do() -> None:
    assert str(errors.BadInput("it is wrong", where="f:3", fix="mend it")) == (
        "f:3: it is wrong; mend it"
    )
    assert str(errors.BadInput("it is wrong")) == "it is wrong"


@pytest.mark.parametrize("name", EXIT_CODES)
def test_an_error_survives_a_pickle(name: str) -> None:
    error = getattr(errors, name)("a", where="b", fix="c")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error)


def test_the_closest_word_is_offered_or_all_of_them() -> None:
    assert did_you_mean("recpie", ["site", "recipe"]) == "did you mean 'recipe'?"
    assert did_you_mean("zzz", ["b", "a"]) == "known: a, b"
