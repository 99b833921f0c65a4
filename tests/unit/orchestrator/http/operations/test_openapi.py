from orchestrator.http.operations.openapi import openapi_document
from orchestrator.http.routes import OPERATIONS


def test_every_operation_is_described() -> None:
    document = openapi_document()
    assert {(path, method) for path, item in document["paths"].items() for method in item} == {
        (operation.path.replace(":path", ""), operation.method.lower())
        for operation in OPERATIONS
        if operation.path != "/metrics"
    }
    identifiers = [each["operationId"] for item in document["paths"].values() for each in item.values()]
    assert len(set(identifiers)) == len(identifiers)
