"""A GPU node in memory: the agent runs on it unchanged, on a machine without GPU or cluster."""
