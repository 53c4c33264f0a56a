"""gpu-reactor: an event-driven GPU node agent for Kubernetes.

Read ``agent.py`` from top to bottom to see how the parts fit; ``bus.py`` for how an event becomes an action.
"""
