"""Where messages shall wait."""
