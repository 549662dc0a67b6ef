"""Ranks and what moves between them: roles, rounds, trajectories, weights."""
