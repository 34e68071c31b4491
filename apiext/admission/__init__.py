"""Admission plug-ins, which mutate, validate or deny a write before it is stored."""
