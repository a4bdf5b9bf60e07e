"""Thin commands, one file a command group."""
