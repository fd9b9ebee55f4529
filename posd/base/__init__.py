"""What every part uses and what depends on no other: JSON, money, times, ids, locks, crash points, meters."""
