"""Config text in, typed config or positioned problems out: the only owner of YAML.

``document`` makes a tree of values with their places, ``read`` walks it along the types of ``schema``, ``parse`` adds
the rules that span several values and builds the model's ``Config``. A text is accepted whole or not at all.
"""

from reactor.config.document import MAX_BYTES
from reactor.config.effective import effective
from reactor.config.fetch import fetch
from reactor.config.parse import Accepted, Rejected, parse
from reactor.config.published import json_schema

__all__ = ["MAX_BYTES", "Accepted", "Rejected", "effective", "fetch", "json_schema", "parse"]
