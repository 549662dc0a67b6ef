"""Whether this node can run a job: a page of findings, each with what to do about it."""
