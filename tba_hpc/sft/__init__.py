"""Supervised fine-tuning on a task's reference solutions: the policy that reinforcement learning starts from."""
