"""Migrations, from the command line."""
