from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from slurmmiles.catalog import Catalog
from slurmmiles.plan import Request, make_plan
from slurmmiles.planfile import Plan, filled


@pytest.fixture
def plan(catalog: Catalog) -> Plan:
    return make_plan(
        catalog.recipe("tiny"), catalog.site("generic"), Request(), model=catalog.model("tiny")
    )


def test_a_plan_survives_its_file(plan: Plan) -> None:
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


def test_a_plan_of_another_version_is_refused(plan: Plan) -> None:
    data = plan.model_dump(mode="json")
    for change in ({"version": 2}, {"colour": "red"}, {"nodes": "two"}):
        with pytest.raises(ValidationError):
            Plan.model_validate({**data, **change})
    del data["slurm"]
    with pytest.raises(ValidationError):
        Plan.model_validate(data)


def test_a_plan_cannot_be_changed(plan: Plan) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        plan.nodes = 3  # type: ignore[misc]


def test_placeholders_are_filled_through_lists_and_mappings() -> None:
    value = {"argv": ["{python}", "-m", "x{run_dir}y"], "n": 1, "none": None, "t": ("{python}",)}
    assert filled(value, {"python": "/py", "run_dir": "/r"}) == {
        "argv": ["/py", "-m", "x/ry"],
        "n": 1,
        "none": None,
        "t": ["/py"],
    }


def test_a_value_is_not_filled_in_twice_and_other_braces_stay() -> None:
    assert filled("{python} {other} {} {{python}}", {"python": "{run_dir}", "run_dir": "/r"}) == (
        "{run_dir} {other} {} {{run_dir}}"
    )
    assert filled("{python}", {}) == "{python}"
    assert filled("${python} ${run_dir}", {"python": "/py"}) == "${python} ${run_dir}"


@given(st.text(max_size=50))
def test_text_without_a_placeholder_is_left_as_it_is(text: str) -> None:
    assert filled(text.replace("{", "("), {"python": "/py"}) == text.replace("{", "(")
