"""From a batch of trajectories to an optimizer step."""
