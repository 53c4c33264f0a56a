"""Handlers make the world match the state: one module each, none imports another."""
