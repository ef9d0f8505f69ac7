"""The main job, seen."""
