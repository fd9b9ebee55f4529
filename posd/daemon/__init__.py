"""The process: built, started, watched, reloaded, stopped. Only this package connects the parts."""
