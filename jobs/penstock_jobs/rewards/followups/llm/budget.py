"""What a run may spend on a judge that costs money."""

import threading


class Budget:
    """Tokens are set aside before a request is sent, by a guess that is rather too high, and put
    right by what the answer says. Safe between threads."""

    def __init__(self, requests_max: int, tokens_max: int) -> None:
        self._requests_max = requests_max
        self._tokens_max = tokens_max
        self._lock = threading.Lock()
        self.requests = 0
        self.tokens = 0

    def take(self, tokens: int) -> bool:
        """Whether one more request of so many tokens may be sent."""
        with self._lock:
            if self.requests >= self._requests_max or self.tokens + tokens > self._tokens_max:
                return False
            self.requests += 1
            self.tokens += tokens
            return True

    def settle(self, taken: int, spent: int) -> None:
        with self._lock:
            self.tokens += spent - taken
