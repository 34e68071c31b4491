"""Text as Go prints it."""
