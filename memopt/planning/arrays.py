"""Types of the arrays that plans are made on."""

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
