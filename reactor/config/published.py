"""The JSON schema of the config file, for editors: made from the types that the file is read by."""

from __future__ import annotations

import json

import msgspec

from reactor.config.schema import File


def json_schema() -> str:
    """The text of ``config/config.schema.json``.

    It knows types, choices and doc lines; the rules that span values, null and duplicate keys are left to ``check``.
    """
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(File)}
    return json.dumps(schema, indent=2) + "\n"
