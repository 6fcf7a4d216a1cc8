"""How a sealed file begins. Whoever only asks whether one is sealed loads no cipher."""

SEALED_MARK = b"PSEALED1"


def is_sealed(content: bytes) -> bool:
    return content.startswith(SEALED_MARK)
