from __future__ import annotations

import unittest

import calculator


class Calculator(unittest.TestCase):
    def test_whole_numbers(self) -> None:
        self.assertEqual(calculator.add(2, 3), 5)
        self.assertEqual(calculator.subtract(2, 3), -1)
        self.assertEqual(calculator.multiply(2, 3), 6)

    def test_divide_keeps_the_fraction(self) -> None:
        self.assertEqual(calculator.divide(7, 2), 3.5)


if __name__ == "__main__":
    unittest.main()
