"""Numbered SQL files, append-only; each is one step of `user_version`."""
