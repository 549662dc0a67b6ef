"""Reinforcement-learning post-training of language models by Trajectory Balance with Asynchrony."""

__version__ = "0.1.0"
