"""What ours is compared with, each a program of its own; they read the same environment."""
