"""Fuzzing: generated input against written invariants (docs/evidence/fuzzing.md)."""
