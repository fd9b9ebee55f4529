"""Fuzzing: generated input against written invariants (docs/fuzzing.md)."""
