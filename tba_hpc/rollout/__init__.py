"""Sampling responses from a copy of the policy."""
