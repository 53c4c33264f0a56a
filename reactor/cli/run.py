"""``gpu-reactor run``: the agent."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from reactor.cli import add_command
from reactor.cli.options import add_config_flags

if TYPE_CHECKING:
    from argparse import Namespace, _SubParsersAction

    from reactor.cli import Parser

BAD_SETTING = 78
"""EX_CONFIG of sysexits: only another command line or environment helps, not another try."""

_DESCRIPTION = """\
Run the agent: find the GPUs, serve them to the kubelet as the config says, and follow every change of config, kubelet
and GPUs without restarting anything. The log goes to stdout, one JSON object a line. SIGHUP reads the config and looks
at the GPUs again, SIGTERM and SIGINT stop the agent; pods keep their GPUs.

A config with errors does not stop it: what was last accepted stays in force. See 'gpu-reactor check'."""

_EPILOG = """\
The variables named above count where the flag is not given, the first one set wins. A flag goes before a variable, a
variable before the file; both are read once, at the start. A flag that is true or false is given as --flag or
--flag=false. DP_DISABLE_HEALTHCHECKS and DP_ENABLE_HEALTHCHECKS are read as well.

examples:
  gpu-reactor run --config /etc/gpu-reactor/config.yaml
  gpu-reactor run --config '' --simulate-nvml 8xH100 --kubelet-root /tmp/kubelet \\
      --state-dir /tmp/state --admin-socket /tmp/agent.sock --allow-inject

exit codes: 0 stopped, 1 crashed or stranded without a kubelet, 78 bad flag or variable"""


def add_parser(subparsers: _SubParsersAction[Parser]) -> None:
    parser = add_command(subparsers, "run", summary="the agent", description=_DESCRIPTION)
    parser.epilog = _EPILOG
    parser.usage_code = BAD_SETTING
    _add_flags(parser)
    add_config_flags(parser)
    parser.set_defaults(run=run)


def _add_flags(parser: Parser) -> None:
    def flag(*names: str, metavar: str, text: str) -> None:
        parser.add_argument(*names, metavar=metavar, help=text)

    flag(
        "--config",
        "--config-file",
        metavar="FILE",
        text="k8s-device-plugin v1 config; its directory is watched. Empty: built-in defaults "
        "(variable CONFIG_FILE; default /etc/gpu-reactor/config.yaml)",
    )
    flag("--kubelet-root", metavar="DIR", text="default /var/lib/kubelet")
    flag("--plugin-dir", metavar="DIR", text="directory of kubelet.sock (default: device-plugins in the kubelet root)")
    flag(
        "--kubelet-socket",
        metavar="PATH",
        text="the same, said as the path of the socket; must end in kubelet.sock. Empty: the kubelet's plugin watcher "
        "finds us, in plugins_registry in the kubelet root; --plugin-dir is needed all the same, for the kubelet's "
        "checkpoint (variable KUBELET_SOCKET)",
    )
    flag(
        "--pod-resources-socket",
        metavar="PATH",
        text="who has which GPU is asked here (default: pod-resources/kubelet.sock in the kubelet root)",
    )
    flag("--state-dir", metavar="DIR", text="what outlives a restart (default /var/lib/gpu-reactor)")
    flag("--admin-socket", metavar="PATH", text="for status and inject (default /run/gpu-reactor/agent.sock)")
    flag(
        "--probe-listen",
        metavar="HOST:PORT",
        text="/healthz and /readyz; empty: none (default 127.0.0.1:9465)",
    )
    flag("--metrics-listen", metavar="HOST:PORT", text="/metrics for Prometheus; empty: none (the default)")
    flag(
        "--journal",
        metavar="FILE",
        text="write every event there, for 'gpu-reactor replay'; two files of 64 MiB at most",
    )
    flag("--node-name", metavar="NAME", text="name of this node (variable NODE_NAME)")
    flag("--resync", metavar="SECONDS", text="between looks at the GPUs that nothing asked for (default 30)")
    flag("--grace", metavar="SECONDS", text="for handlers and servers to end after SIGTERM (default 5)")
    flag(
        "--simulate-nvml",
        metavar="SPEC",
        text="run on simulated GPUs, such as 8xH100 (or the socket of a simulated host): nothing served is real",
    )
    parser.add_argument("--allow-inject", action="store_true", help="accept 'gpu-reactor inject' (for tests)")


def run(args: Namespace) -> int:
    from reactor.cli.settings import read_settings
    from reactor.model.errors import Refused

    try:
        settings = read_settings(args, os.environ)
    except Refused as exc:
        for line in str(exc).splitlines():
            print(f"gpu-reactor run: {line}", file=sys.stderr)
        return BAD_SETTING
    from reactor import start

    if settings.simulate_nvml:
        from reactor.simulate.hosted import simulated_nvml

        return start.main(settings, simulated_nvml)
    return start.main(settings)
