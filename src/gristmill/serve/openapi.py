"""The description of the API at /openapi.json and /docs: bodies that routes read themselves. It knows no route."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

_REF = "#/components/schemas/{model}"


@dataclass(frozen=True, slots=True)
class Operation:
    """A POST route and the model of its body."""

    path: str
    model: type[BaseModel]


def describe(app: FastAPI, operations: Sequence[Operation]) -> None:
    """Put the bodies' schemas into what the application says of itself."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = generate()
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            for operation in operations:
                schema = operation.model.model_json_schema(ref_template=_REF)
                schemas |= schema.pop("$defs", {})
                schemas[operation.model.__name__] = schema
                content = {"application/json": {"schema": {"$ref": _REF.format(model=operation.model.__name__)}}}
                document["paths"][operation.path]["post"]["requestBody"] = {"required": True, "content": content}
        return app.openapi_schema or {}

    app.openapi = openapi  # type: ignore[method-assign]
