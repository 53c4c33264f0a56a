"""gpu-reactor: an event-driven GPU node agent for Kubernetes.

Read ``agent.py`` from top to bottom to see how the parts fit; ``bus.py`` for how an event becomes an action.
"""

__version__ = "0.1.0.dev0"
"""As in pyproject.toml. Asking the installed distribution would load the machinery for mails."""
