from orchestrator.http.operations.openapi import OPERATIONS, openapi_document


def test_every_operation_is_described() -> None:
    document = openapi_document()
    assert {(path, method) for path, item in document["paths"].items() for method in item} == {
        (operation.path, operation.method) for operation in OPERATIONS
    }
    identifiers = [each["operationId"] for item in document["paths"].values() for each in item.values()]
    assert len(set(identifiers)) == len(identifiers)
