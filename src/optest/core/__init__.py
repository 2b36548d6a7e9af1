"""The engine: one case (runner), its worker process, the schedule, and the loop over all of them (session)."""
