"""What was inserted into a sequence: copies of a block, or what stores and restores a result."""

from __future__ import annotations

from typing import NamedTuple


class Copied(NamedTuple):
    """What came of copying a block.

    Attributes:
        copies: The copies in the order in which they run, those of views included.
        last: The copy of the block's last member.
        moved: Pairs of a reader and the original's buffer that it does not read any more.
    """

    copies: list[int]
    last: int
    moved: list[tuple[int, int]]


class Stored(NamedTuple):
    """What came of storing a result in another form.

    Attributes:
        store: What stores it; it counts as run.
        last_use: After whom: the last who reads the result itself.
        copied: What restores it, and copies of views of it.
    """

    store: int
    last_use: int
    copied: Copied
