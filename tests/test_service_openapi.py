"""The description of the API and the API itself: neither has what the other lacks."""

import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from tornado.web import RequestHandler

from spectrum_spawner.audit import ACTIONS
from spectrum_spawner.service.api import ROUTES, Nothing
from spectrum_spawner.service.culling.policy import Cause, Decision
from spectrum_spawner.service.gpu_rows import STATES
from spectrum_spawner.service.openapi import describe

DOCUMENT = describe("/services/spectrum/")
SCHEMAS = DOCUMENT["components"]["schemas"]
METHODS = ("get", "post", "put", "patch", "delete")


def find_methods(handler: type[RequestHandler]) -> set[str]:
    """The methods that a handler answers."""
    return {m for m in METHODS if getattr(handler, m) is not getattr(RequestHandler, m)}


def find_references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if "$ref" in part:
            yield part["$ref"]
        part = list(part.values())
    if isinstance(part, list):
        for each in part:
            yield from find_references(each)


def find(reference: str) -> Any:
    found = DOCUMENT
    for key in reference.removeprefix("#/").split("/"):
        found = found[key]
    return found


def list_operations() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Path and method, what its path says of all its methods, and the operation."""
    for path, record in DOCUMENT["paths"].items():
        for method in METHODS:
            if method in record:
                yield f"{method} {path}", record, record[method]


def test_every_route_is_described_and_every_description_is_a_route() -> None:
    described = {
        (re.sub(r"\{[^}]*\}", "…", path).removeprefix("/"), method)
        for path, record in DOCUMENT["paths"].items()
        for method in record.keys() & set(METHODS)
    }
    routed = {
        (re.sub(r"\([^)]*\)", "…", path).replace("\\", ""), method)
        for path, handler in ROUTES
        if handler is not Nothing
        for method in find_methods(handler)
    }
    assert described == routed


def test_what_is_referred_to_is_there_and_nothing_else_is() -> None:
    referred = set(find_references(DOCUMENT))
    for reference in referred:
        assert find(reference)
    made = {
        f"#/components/{kind}/{name}"
        for kind, table in DOCUMENT["components"].items()
        for name in table
        if kind != "securitySchemes"
    }
    assert made == referred


@pytest.mark.parametrize(("name", "record", "operation"), [*list_operations()])
def test_an_operation_tells_its_parameters_and_its_problems(
    name: str, record: dict[str, Any], operation: dict[str, Any]
) -> None:
    named = [find(each["$ref"]) for each in record.get("parameters", [])]
    assert [p["name"] for p in named] == re.findall(r"\{([^}]*)\}", name)
    assert all(each["in"] == "path" and each["required"] for each in named)
    assert operation["summary"]
    assert operation["responses"].keys() > {"default"}


@pytest.mark.parametrize("name", [*SCHEMAS])
def test_schemas_are_valid_ones(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])


def test_the_description_knows_every_word_that_answers_use() -> None:
    assert set(SCHEMAS["action"]["enum"]) == ACTIONS
    assert SCHEMAS["decision"]["enum"] == [*Decision]
    assert SCHEMAS["cause"]["enum"] == [*Cause]
    assert tuple(SCHEMAS["state"]["enum"]) == STATES


def test_it_says_where_the_api_is() -> None:
    assert DOCUMENT["servers"] == [{"url": "/services/spectrum/api"}]
