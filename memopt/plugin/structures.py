"""TensorFlow's C API for graph optimizers: structures, functions and the symbol that registers.

After tensorflow/c/experimental/grappler/grappler.h and tensorflow/c/tf_buffer.h.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_int32, c_size_t, c_ubyte, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

OK = 0
ABORTED = 10
"""TensorFlow's code for "did nothing": the graph stays as it was, and nothing is logged."""

_TOGGLES = 19


class Buffer(ctypes.Structure):
    """TF_Buffer."""

    _fields_ = (("data", c_void_p), ("length", c_size_t), ("deallocator", c_void_p))


class Configs(ctypes.Structure):
    """TP_OptimizerConfigs: which of Grappler's own optimizers a plugin turns off; memopt none."""

    _fields_ = (("struct_size", c_size_t), ("ext", c_void_p), ("toggles", c_int * _TOGGLES))


class Optimizer(ctypes.Structure):
    """TP_Optimizer."""

    _fields_ = (
        ("struct_size", c_size_t),
        ("ext", c_void_p),
        ("create", c_void_p),
        ("optimize", c_void_p),
        ("destroy", c_void_p),
    )


class Registration(ctypes.Structure):
    """TP_OptimizerRegistrationParams."""

    _fields_ = (
        ("struct_size", c_size_t),
        ("ext", c_void_p),
        ("major", c_int32),
        ("minor", c_int32),
        ("patch", c_int32),
        ("device_type", c_char_p),
        ("configs", POINTER(Configs)),
        ("optimizer", POINTER(Optimizer)),
    )


class ReturnedStatus(ctypes.Structure):
    """absl::Status: returned through a hidden pointer, as C returns what has over 16 bytes."""

    _fields_ = (("rep", c_uint64), ("padding", c_uint64 * 7))


OPTIMIZE = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Buffer), c_void_p, POINTER(Buffer), c_void_p)
INIT = ctypes.CFUNCTYPE(None, POINTER(Registration), c_void_p)

_SYMBOLS = tuple(
    f"_ZN10tensorflow8grappler15InitGraphPluginEPFvP30TP_OptimizerRegistrationParamsP{status}E"
    for status in ("10TSL_Status", "9TF_Status")
)

_SIZE_ARGUMENTS = (c_void_p, POINTER(c_int), POINTER(c_size_t), c_void_p)
_LIST_ARGUMENTS = (
    c_void_p,
    POINTER(c_char_p),
    POINTER(c_size_t),
    c_int,
    c_void_p,
    c_size_t,
    c_void_p,
)
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "TF_SetStatus": (None, (c_void_p, c_int, c_char_p)),
    "TF_NewStatus": (c_void_p, ()),
    "TF_DeleteStatus": (None, (c_void_p,)),
    "TF_GetCode": (c_int, (c_void_p,)),
    "TF_Message": (c_char_p, (c_void_p,)),
    "TF_NewBuffer": (c_void_p, ()),
    "TF_DeleteBuffer": (None, (c_void_p,)),
    "TF_GetNodesToPreserveListSize": (None, _SIZE_ARGUMENTS),
    "TF_GetNodesToPreserveList": (None, _LIST_ARGUMENTS),
    "TF_GetFetchNodesListSize": (None, _SIZE_ARGUMENTS),
    "TF_GetFetchNodesList": (None, _LIST_ARGUMENTS),
    "TF_NewGraphProperties": (c_void_p, (c_void_p,)),
    "TF_DeleteGraphProperties": (None, (c_void_p,)),
    "TF_InferStatically": (None, (c_void_p, c_ubyte, c_ubyte, c_ubyte, c_ubyte, c_void_p)),
    "TF_GetOutputPropertiesListSize": (None, (c_void_p, c_char_p, POINTER(c_int), c_void_p)),
    "TF_GetOutputPropertiesList": (
        None,
        (c_void_p, c_char_p, POINTER(c_void_p), c_int, c_void_p),
    ),
}


class Api:
    """TensorFlow's C functions, by name, with their types.

    Raises:
        AttributeError: TensorFlow does not have one of them.
    """

    def __init__(self) -> None:
        import tensorflow as tf

        folder = Path(tf.__file__).parent
        found = sorted(folder.glob("libtensorflow_cc.*"))
        library = next((path for path in found if path.suffix != ".params"), None)
        if library is None:
            raise AttributeError(f"{folder} holds no libtensorflow_cc")
        self.library = ctypes.CDLL(str(library))
        # The linker finds what lies in libtensorflow_framework through the one that needs it.
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(self.library, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"TensorFlow's C API has no {name}")

    def find_registration(self) -> Any | None:
        """The C++ function that registers a graph optimizer, if this TensorFlow exports it."""
        for symbol in _SYMBOLS:
            function = getattr(self.library, symbol, None)
            if function is not None:
                function.restype, function.argtypes = ReturnedStatus, (c_void_p,)
                return function
        return None


@cache
def api() -> Api:
    """The C functions of this process.

    Raises:
        AttributeError: TensorFlow does not have one of them.
    """
    return Api()
