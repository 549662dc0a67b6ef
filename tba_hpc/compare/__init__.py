"""`tba-hpc compare`: the same task with several objectives, schedules and seeds, and what came of it."""
