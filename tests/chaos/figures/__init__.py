"""Figures for the documents: how long deliveries stall for each kind of fault."""
