"""Ids that the backend gives."""

import random


def new_id(entropy: random.Random, length: int = 20) -> str:
    """An id that nobody guesses or has given before: letters and digits, about 6 bits each."""
    letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    return "".join(entropy.choices(letters, k=length))


def new_ids(entropy: random.Random, number: int) -> list[str]:
    """Ids of things that come into being at one moment, in this order: sorted by time and id they keep it."""
    beginning, width = new_id(entropy), len(str(number))
    return [f"{beginning}{count:0{width}}" for count in range(number)]
