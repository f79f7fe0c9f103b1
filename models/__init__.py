"""Training steps of real models, small by default, that import TensorFlow only when built."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from memopt.models.bert import bert
from memopt.models.convnet_v1 import convnet_v1
from memopt.models.densenet121 import densenet121
from memopt.models.gpt import gpt
from memopt.models.lstm import lstm
from memopt.models.mlp import mlp
from memopt.models.mobilenetv2 import mobilenetv2
from memopt.models.resnet50 import resnet50
from memopt.models.training_step import SessionStep, TrainingStep
from memopt.models.unet import unet
from memopt.models.vgg16 import vgg16

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["MODELS", "SESSION_MODELS", "TINY", "SessionStep", "TrainingStep"]

MODELS: Mapping[str, Callable[..., TrainingStep]] = MappingProxyType(
    {
        "resnet50": resnet50,
        "mobilenetv2": mobilenetv2,
        "vgg16": vgg16,
        "densenet121": densenet121,
        "unet": unet,
        "bert": bert,
        "gpt": gpt,
        "lstm": lstm,
        "mlp": mlp,
    }
)
"""Builders of training steps by name. Each takes its sizes, a seed and an optimizer by name."""

SESSION_MODELS: Mapping[str, Callable[..., SessionStep]] = MappingProxyType(
    {"convnet_v1": convnet_v1}
)
"""Builders of training steps for sessions by name. Each takes its sizes and a seed by name."""

_TINY_IMAGES = MappingProxyType({"batch": 2, "image_size": 32, "classes": 10})
# At 32 pixels the last statistics would be over two numbers, and the loss soon exactly zero.
_TINY_RESNET = MappingProxyType({"batch": 4, "image_size": 48, "classes": 10})
_TINY_TRANSFORMER = MappingProxyType(
    {"batch": 2, "tokens": 8, "width": 16, "layers": 2, "heads": 2, "vocabulary": 50}
)

TINY: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {
        "resnet50": _TINY_RESNET,
        "mobilenetv2": _TINY_IMAGES,
        "vgg16": _TINY_IMAGES,
        "densenet121": _TINY_IMAGES,
        "unet": MappingProxyType(
            {"batch": 2, "image_size": 16, "classes": 3, "width": 4, "depth": 2}
        ),
        # One layer is 1,700 nodes; gpt shows what two of them do.
        "bert": MappingProxyType({**_TINY_TRANSFORMER, "layers": 1}),
        "gpt": _TINY_TRANSFORMER,
        "lstm": MappingProxyType(
            {"batch": 2, "steps": 5, "width": 8, "layers": 2, "vocabulary": 50}
        ),
        "mlp": MappingProxyType({"batch": 8, "width": 16, "layers": 6, "classes": 5}),
        "convnet_v1": MappingProxyType(
            {"batch": 8, "image_size": 12, "width": 4, "layers": 2, "classes": 5}
        ),
    }
)
"""Sizes, by model, at which a step takes a fraction of a second."""
