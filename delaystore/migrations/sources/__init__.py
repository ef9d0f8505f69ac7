"""Where messages wait now."""
