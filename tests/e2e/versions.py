"""Which nodes a test runs on: those of ``WHOLE`` if it says nothing else."""

from __future__ import annotations

import pytest

WHOLE = ("1.34", "1.37")
"""Kubelet and control plane of the same version."""
EVERY_KUBELET = pytest.mark.parametrize("shared", ["1.29", *WHOLE], indirect=True)
"""Also a kubelet 1.29, under the control plane of 1.34."""
OLD_KUBELET = pytest.mark.parametrize("shared", ["1.29"], indirect=True)
