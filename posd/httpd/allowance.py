"""Allowance of each key: for a limit of a rate, of a day, or of an amount in use."""

import math
from collections.abc import Callable, Hashable

#: Maximum number of stored keys in an allowance with a rate.
MAX_KEYS = 4096


class Allowance:
    """Allowance of `room` for each key. It refills at `rate` a second; without a rate only `give_back` refills it.

    A key with its full allowance is not stored. With a rate and more than `most` keys, the key that has been unused for
    the longest time is dropped. `clock`: monotonic seconds.
    """

    def __init__(
        self, room: float, rate: float = 0.0, clock: Callable[[], float] = lambda: 0.0, most: int = MAX_KEYS
    ) -> None:
        self.room = room
        self.rate = rate
        self._clock = clock
        self._most = most
        self._used: dict[Hashable, tuple[float, float]] = {}  # key -> used amount and time, the newest last

    def __len__(self) -> int:
        """Return the number of stored keys."""
        return len(self._used)

    def used(self, key: Hashable = "") -> float:
        """Return the amount that a key has used, minus the amount that has refilled since."""
        used, at = self._used.get(key, (0.0, 0.0))
        return max(0.0, used - (self._clock() - at) * self.rate)

    def seconds_until(self, key: Hashable = "", amount: float = 1) -> float:
        """Return the seconds until `amount` fits, or 0 if it fits now.

        An amount above `room` fits when nothing is used. Return infinity if only `give_back` can make room.
        """
        missing = self.used(key) + min(amount, self.room) - self.room
        if missing <= 0:
            return 0.0
        return missing / self.rate if self.rate else math.inf

    def take(self, key: Hashable = "", amount: float = 1) -> None:
        """Use an amount. The used amount may exceed the allowance, because two callers can check at the same time."""
        self._add(key, amount)
        if self.rate and len(self._used) > self._most:
            del self._used[next(iter(self._used))]

    def try_take(self, key: Hashable = "", amount: float = 1) -> bool:
        """Use an amount if it fits. Return whether it fitted."""
        if self.seconds_until(key, amount):
            return False
        self.take(key, amount)
        return True

    def give_back(self, key: Hashable = "", amount: float = 1) -> None:
        """Refill the allowance of a key by a used amount."""
        self._add(key, -amount)

    def _add(self, key: Hashable, amount: float) -> None:
        now = self._clock()
        used, at = self._used.pop(key, (0.0, now))
        used = max(0.0, used - (now - at) * self.rate) + amount
        if used > 0:
            self._used[key] = (used, now)
