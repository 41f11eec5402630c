"""A corpus of hostile requests, built from tables: one module for each level at which a request can be wrong."""
