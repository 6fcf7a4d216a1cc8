"""A clock that a test moves by hand."""


class ManualClock:
    def __init__(self, now_us: int = 1_795_219_200_000_000) -> None:
        self._now_us = now_us
        self._elapsed_s = 0.0

    def now_us(self) -> int:
        return self._now_us

    def elapsed_s(self) -> float:
        return self._elapsed_s

    def advance(self, seconds: float) -> None:
        self.jump(seconds)
        self._elapsed_s += seconds

    def jump(self, seconds: float) -> None:
        """Move the wall clock alone, as an operator or a time server does."""
        self._now_us += round(seconds * 1_000_000)
