"""Config text in, typed config or positioned problems out: the only owner of YAML.

``document`` makes a tree of values with their places, ``read`` walks it along the types of ``schema``, ``parse`` adds
the rules that span several values and builds the model's ``Config``. A text is accepted whole or not at all.
"""

from reactor.config.document import MAX_BYTES
from reactor.config.effective import effective
from reactor.config.fetch import Fetch
from reactor.config.overrides import read_overrides
from reactor.config.parse import Accepted, Rejected, parse
from reactor.config.published import json_schema, keys
from reactor.config.read import Plain, doc_of
from reactor.model.options import DRIVER_ROOT, OPTIONS, Given, Kind, Option

__all__ = [
    "DRIVER_ROOT",
    "MAX_BYTES",
    "OPTIONS",
    "Accepted",
    "Fetch",
    "Given",
    "Kind",
    "Option",
    "Plain",
    "Rejected",
    "doc_of",
    "effective",
    "json_schema",
    "keys",
    "parse",
    "read_overrides",
]
