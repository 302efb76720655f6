"""Studies: one module a method, measuring the claims of its card."""
