"""SavedModels that several tests share, made once: one that trains, and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.saved_models import save_network

from memopt.saved_model.entry import optimize_saved_model

if TYPE_CHECKING:
    from pathlib import Path

    from memopt.saved_model.report import SavedModelReport


@pytest.fixture(scope="session")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network with the signatures "train" and "predict", and a file of labels."""
    return save_network(tmp_path_factory.mktemp("saved") / "network")


@pytest.fixture(scope="session")
def open_network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for batches of any size."""
    return save_network(tmp_path_factory.mktemp("saved") / "open", batch=None)


@pytest.fixture(scope="session")
def report(network: Path) -> SavedModelReport:
    """What was done to the network within 60 %."""
    return optimize_saved_model(network, network.with_name("leaner"), budget="60%")


@pytest.fixture(scope="session")
def leaner(report: SavedModelReport, network: Path) -> Path:
    """The network within 60 %."""
    assert report.out
    return network.with_name("leaner")
