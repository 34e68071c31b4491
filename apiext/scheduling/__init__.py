"""The event loop: budgets of its iterations, work in slices, and shares of the threads."""
