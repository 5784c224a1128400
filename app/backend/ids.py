"""Generates ids."""

import random


def new_id(entropy: random.Random, length: int = 20) -> str:
    """A random id of letters and digits, with about 6 bits each."""
    letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    return "".join(entropy.choices(letters, k=length))


def new_ids(entropy: random.Random, number: int) -> list[str]:
    """Ids of items with the same creation time. They sort in this order."""
    prefix, width = new_id(entropy), len(str(number))
    return [f"{prefix}{count:0{width}}" for count in range(number)]
