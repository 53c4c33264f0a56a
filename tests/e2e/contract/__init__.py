"""The table of tests/contract, held against real kubelets."""
