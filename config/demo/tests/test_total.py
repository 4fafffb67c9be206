import unittest

from prices import total


class Total(unittest.TestCase):
    def test_adds_up(self):
        self.assertEqual(total([1, 2, 3]), 6)
