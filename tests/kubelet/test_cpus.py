"""KBL-22: whether the kubelet pins CPUs, as far as its own file tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from reactor.kubelet.cpus import pins_cpus


@pytest.mark.parametrize(
    ("text", "pins"),
    [
        ('{"policyName":"static","defaultCpuSet":"0-7","entries":{},"checksum":1353318690}', True),
        ('{"policyName":"none","defaultCpuSet":"","checksum":1}', False),
        ('{"policyName":["static"]}', False),
        ('["static"]', False),
        ("", False),
        ("[" * 100_000, False),
        ("\xff", False),
        (None, False),
    ],
)
def test_the_policy_is_read_from_the_kubelets_file(tmp_path: Path, text: str | None, pins: bool) -> None:
    if text is not None:
        (tmp_path / "cpu_manager_state").write_text(text, encoding="latin-1")
    assert pins_cpus(tmp_path) is pins
