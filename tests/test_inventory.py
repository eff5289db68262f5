"""The inventory record: numbers that survive the trip, and doubt that stays doubt."""

import json

import pytest

from spectrum_spawner.inventory import GPUs, Inventory

A100 = GPUs(resource="nvidia.com/gpu", product="A100", total=4, free=1)
T4 = GPUs(resource="nvidia.com/gpu", product="T4", total=2, free=2)
SLICE = GPUs(resource="nvidia.com/mig-1g.10gb", product="A100", total=7, free=0)


def test_an_inventory_is_read_back_as_it_was_written() -> None:
    inventory = Inventory(gpus=(A100, T4, SLICE), teams={"flight": {"nvidia.com/gpu": 3}})
    assert Inventory.from_json(inventory.to_json()) == inventory


def test_the_published_text_is_the_documented_one_whatever_the_order() -> None:
    teams = {"ops": {"nvidia.com/gpu": 2}, "flight": {"nvidia.com/gpu": 1}}
    text = Inventory(gpus=(T4, A100), teams=teams).to_json()
    assert json.loads(text) == {
        "gpus": [
            {"resource": "nvidia.com/gpu", "product": "A100", "total": 4, "free": 1},
            {"resource": "nvidia.com/gpu", "product": "T4", "total": 2, "free": 2},
        ],
        "teams": {"flight": {"nvidia.com/gpu": 1}, "ops": {"nvidia.com/gpu": 2}},
    }
    turned = dict(reversed(teams.items()))
    assert Inventory(gpus=(A100, T4), teams=turned).to_json() == text


def test_numbers_are_by_product_or_over_all_products() -> None:
    inventory = Inventory(gpus=(A100, T4, SLICE))
    assert inventory.total("nvidia.com/gpu") == 6
    assert inventory.free("nvidia.com/gpu") == 3
    assert inventory.free("nvidia.com/gpu", "A100") == 1
    assert inventory.total("nvidia.com/gpu", "H200") == 0
    assert inventory.free("nvidia.com/mig-1g.10gb") == 0


def test_a_team_that_holds_nothing_holds_zero() -> None:
    inventory = Inventory(teams={"flight": {"nvidia.com/gpu": 1}})
    assert inventory.held_by("flight", "nvidia.com/gpu") == 1
    assert inventory.held_by("ops", "nvidia.com/gpu") == 0


def test_what_nobody_has_counted_is_not_zero() -> None:
    assert Inventory.UNKNOWN.total("nvidia.com/gpu") is None
    assert Inventory.UNKNOWN.free("nvidia.com/gpu") is None
    assert Inventory.UNKNOWN.held_by("flight", "nvidia.com/gpu") is None
    with pytest.raises(ValueError, match="cannot be published"):
        Inventory.UNKNOWN.to_json()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"gpus": [{}], "teams": {}}', '{"gpus": [], "teams": []}', '{"gpus": 1}'],
)
def test_any_other_text_is_no_inventory(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Inventory.from_json(text)
