"""How sums are accumulated, and when their bits stay; used by the pass `addn-scheduling`."""
