from __future__ import annotations

import jsonschema

from orchestrator.http.operations.openapi import OPERATIONS, openapi_document


def resolve(document, schema):
    return document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]


def test_every_operation_is_described() -> None:
    document = openapi_document()
    assert {(path, method) for path, item in document["paths"].items() for method in item} == {
        (operation.path, operation.method) for operation in OPERATIONS
    }
    identifiers = [each["operationId"] for item in document["paths"].values() for each in item.values()]
    assert len(set(identifiers)) == len(identifiers)


def test_schemas_tell_good_requests_from_bad_ones() -> None:
    document = openapi_document()
    body = document["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]
    schema = {**resolve(document, body["schema"]), "components": document["components"]}
    validator = jsonschema.Draft202012Validator(schema)
    good = {"messages": [{"role": "user", "content": "x"}], "temperature": 0.5, "speculation": {"mode": "on"}}
    assert validator.is_valid(good)
    for bad in ({}, {**good, "speculation": {"mode": "maybe"}}):
        assert not validator.is_valid(bad)
