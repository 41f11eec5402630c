//! Stories of what comes back.
