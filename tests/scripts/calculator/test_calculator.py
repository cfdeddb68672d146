from __future__ import annotations

import unittest

import calculator  # type: ignore[import-not-found]


class Calculator(unittest.TestCase):
    def test_whole_numbers(self) -> None:
        assert calculator.add(2, 3) == 5
        assert calculator.subtract(2, 3) == -1
        assert calculator.multiply(2, 3) == 6

    def test_divide_keeps_the_fraction(self) -> None:
        quotient = calculator.divide(7, 2)
        assert quotient == 3.5, f"7 / 2 is {quotient}"


if __name__ == "__main__":
    unittest.main()
