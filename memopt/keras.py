"""For Keras: a callback that tells the memory of each epoch. Importing this imports Keras."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras

from memopt.display import Displayed, Overview, Table, bytes_text
from memopt.errors import OptionsError
from memopt.options import parse_bytes
from memopt.plugin.records import RECORDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memopt.plugin.records import GraphRecord

PEAK, IS_MEASURED, IS_KEPT = "peak_memory_bytes", "peak_memory_measured", "budget_kept"
"""What is written to the logs of an epoch."""


class MemoryReport(keras.callbacks.Callback, Displayed):  # type: ignore[misc]  # Keras has no types
    """Tells the peak of memory of each epoch, and whether it keeps to a budget.

    At the end of an epoch these go to its `logs`, and so to `History`, `CSVLogger` and, if it comes
    later in the list of callbacks, to `TensorBoard`:

    1. `peak_memory_bytes`: the most that was in use at any moment of the epoch. Where TensorFlow's
       allocator keeps count, it is what that says, of the device with most: on GPUs, and on the
       host where `TF_CPU_ALLOCATOR_USE_BFC=1` was set before TensorFlow started. It counts chunks,
       which are larger than what was asked for, and all of the process: data that is prefetched,
       validation. Elsewhere it is what was predicted of the step when memopt rewrote it; without
       either it is left out.
    2. `peak_memory_measured`: 1.0 if it was measured, 0.0 if it was predicted.
    3. `budget_kept`: 1.0 or 0.0, if there is a budget. One that is given here is for that peak; one
       that memopt rewrote the step for is the step's own, and held against what was predicted.

    What is measured also becomes `measured_peak_bytes` of the step's record in
    `memopt.last_reports()`. The allocator's statistics are reset when an epoch begins.

    Args:
        budget: Bytes, or "6GiB"; without, the budget that memopt rewrote the step for, if it did.

    Attributes:
        epochs: What was written to the logs, by epoch.

    Raises:
        OptionsError: The budget is no number of bytes.
    """

    def __init__(self, budget: int | str | None = None) -> None:
        super().__init__()
        if isinstance(budget, str) and "%" in budget:
            raise OptionsError(f"a share of what is not known is no budget: {budget!r}; give bytes")
        self._budget_bytes = 0 if budget is None else parse_bytes(str(budget))
        self._before: frozenset[int] = frozenset()
        self._record: GraphRecord | None = None
        self._measured: tuple[str, ...] = ()
        self.epochs: list[dict[str, float]] = []

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Note what was rewritten before, which is not of this training."""
        del logs
        self._before = frozenset(map(id, RECORDS.last()))
        self._measured = _measurable()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Let the allocators count from here on."""
        import tensorflow as tf

        del epoch, logs
        for device in self._measured:
            tf.config.experimental.reset_memory_stats(device)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Write what is known to the logs of the epoch."""
        del epoch
        self._record = self._find_record() or self._record
        found = self._figures()
        self.epochs.append(found)
        if logs is not None:
            logs.update(found)

    def _find_record(self) -> GraphRecord | None:
        """The record of the step: of those made in this training, that which needs most."""
        made = [
            record
            for record in RECORDS.last()
            if id(record) not in self._before and record.peak_after_bytes
        ]
        return max(made, key=lambda record: record.peak_after_bytes, default=None)

    def _figures(self) -> dict[str, float]:
        record = self._record
        measured_bytes = max((_peak_bytes(device) for device in self._measured), default=0)
        if measured_bytes and record is not None:
            self._record = record = RECORDS.note_measured(record, measured_bytes)
        peak_bytes = measured_bytes or (0 if record is None else record.peak_after_bytes)
        if not peak_bytes:
            return {}
        found = {PEAK: float(peak_bytes), IS_MEASURED: float(bool(measured_bytes))}
        if self._budget_bytes:
            found[IS_KEPT] = float(peak_bytes <= self._budget_bytes)
        elif record is not None and record.budget_bytes:
            found[IS_KEPT] = float(record.peak_after_bytes <= record.budget_bytes)
        return found

    def _overview(self) -> Overview:
        rows = tuple(_rows(self.epochs))
        known = [row[PEAK] for row in self.epochs if PEAK in row]
        outcome = f"highest peak {bytes_text(int(max(known)))}" if known else "nothing known"
        return Overview("MemoryReport", outcome, (Table(("epoch", "peak", "", "budget"), rows),))


def _rows(epochs: Iterable[dict[str, float]]) -> Iterable[tuple[str, ...]]:
    for number, found in enumerate(epochs, 1):
        if PEAK not in found:
            yield str(number), "", "not known", ""
            continue
        how = "measured" if found[IS_MEASURED] else "predicted"
        kept = {1.0: "kept", 0.0: "NOT kept"}.get(found.get(IS_KEPT, -1.0), "")
        yield str(number), bytes_text(int(found[PEAK])), how, kept


def _measurable() -> tuple[str, ...]:
    """The devices whose allocators keep count: all GPUs, or else the host if it does."""
    import tensorflow as tf

    gpus = tf.config.list_logical_devices("GPU")
    names = [device.name for device in gpus] or ["CPU:0"]
    return tuple(name for name in names if _keeps_count(name))


def _keeps_count(device: str) -> bool:
    import tensorflow as tf

    try:
        tf.config.experimental.get_memory_info(device)
        tf.config.experimental.reset_memory_stats(device)
    except ValueError:
        return False
    return True


def _peak_bytes(device: str) -> int:
    import tensorflow as tf

    return int(tf.config.experimental.get_memory_info(device)["peak"])
