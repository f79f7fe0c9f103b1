"""Resizing of images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.costs.estimator.convolution import IMAGE_RANK
from memopt.costs.estimator.op_info import Attribute, Formula, flag_of, text_of
from memopt.costs.estimator.unknown_op import unknown_work

if TYPE_CHECKING:
    from memopt.costs.estimator.op_info import OpInfo, Work

INTERPOLATION = 9
"""Operations per element: between two pixels above, two below, and the two results."""

WEIGHTS = {False: 10, True: 12}
"""Operations per row and column, by whether pixels are taken at their centers."""

BILINEAR, NEAREST = "bilinear", "nearest"

PER_BOX = 28
PER_POSITION = 4
PER_BILINEAR_POSITION = 3
PER_NEAREST_POSITION = 2
CONVERSION = 1


def _resize(info: OpInfo) -> Work | None:
    """Bilinear interpolation to the output's size (`PredictResizeBilinear`)."""
    if not info.outputs or not info.inputs:
        return None
    _, height, width, _ = info.sizes(info.output().shape, IMAGE_RANK)
    weights = WEIGHTS[info.attributes["half_pixel_centers"]] * (height + width)
    return info.work_on_all(weights + INTERPOLATION * info.elements(info.output()))


RESIZE = Formula(_resize, (Attribute("half_pixel_centers", flag_of, False),))


def _crop_and_resize(info: OpInfo) -> Work | None:
    """Boxes of images, all brought to one size (`PredictCropAndResize`)."""
    method = info.attributes["method"]
    if method not in (BILINEAR, NEAREST) or not info.outputs:
        return unknown_work(info)
    boxes = (info.input(1).shape or (-1,))[0]
    if boxes < 0:
        return None
    _, height, width, _ = info.sizes(info.output().shape, IMAGE_RANK)
    elements = info.elements(info.output())
    rows, pixels = boxes * height, boxes * height * width
    operations = PER_BOX * boxes + PER_POSITION * (rows + pixels)
    if method == NEAREST:
        operations += PER_NEAREST_POSITION * pixels + CONVERSION * elements
    else:
        operations += PER_BILINEAR_POSITION * (rows + pixels)
        operations += (4 * CONVERSION + INTERPOLATION) * elements
    return info.work_on_all(operations)


CROP_AND_RESIZE = Formula(_crop_and_resize, (Attribute("method", text_of, BILINEAR),))
