"""A shop that reminds its customers to pay."""
