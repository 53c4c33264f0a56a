"""``python -m reactor`` is ``gpu-reactor``."""

from __future__ import annotations

import sys

from reactor.cli import main

sys.exit(main())
