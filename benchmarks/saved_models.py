"""SavedModels before and after: bits, measured and predicted peaks, step times, by both loaders.

Each training step is saved, rewritten as a file, and both run in fresh processes under TensorFlow's
default settings, by Python's loader and by TensorFlow's C++ loader. Prints a table and writes JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from machine import describe_machine
from memopt.display import bytes_text
from memopt.models import MODELS
from memopt.saved_model.entry import optimize_saved_model
from memopt.saved_model.verification import verify_saved_models

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memopt.models.training_step import TrainingStep
