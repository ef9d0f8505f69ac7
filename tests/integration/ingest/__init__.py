"""The commands of `delaystore ingress run` that are about a topology, on a real broker."""
