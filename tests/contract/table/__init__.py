"""One table of what kubelets do with device plugins: each row runs against the simulated kubelet and the real ones."""
