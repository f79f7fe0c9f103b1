"""The passes, in the order in which the optimizer runs them."""

from memopt.context import Context
from memopt.passes.addn_scheduling import AddnScheduling
from memopt.passes.base import Pass
from memopt.passes.bypass_barriers import BypassBarriers
from memopt.passes.bypass_calls import BypassCalls
from memopt.passes.bypass_optionals import BypassOptionals
from memopt.passes.checkpoint_loops import CheckpointLoops
from memopt.passes.compiled_rematerialization import CompiledRematerialization
from memopt.passes.depthwise_gradients import DepthwiseGradients
from memopt.passes.effects_before_data import EffectsBeforeData
from memopt.passes.fission import Fission
from memopt.passes.fold_branches import FoldBranches
from memopt.passes.fold_shapes import FoldShapes
from memopt.passes.inline_calls import InlineCalls
from memopt.passes.lean_loops import LeanLoops
from memopt.passes.merge_addends import MergeAddends
from memopt.passes.narrow_broadcasts import NarrowBroadcasts
from memopt.passes.ordering import Ordering
from memopt.passes.pin_sums import PinSums
from memopt.passes.pooling_gradients import PoolingGradients
from memopt.passes.recomputation import Recomputation
from memopt.passes.relax_allocator import RelaxAllocator
from memopt.passes.rematerialization import Rematerialization
from memopt.passes.running_sums import RunningSums
from memopt.passes.serial_loops import SerialLoops
from memopt.passes.swapping import Swapping

PASSES: tuple[type[Pass], ...] = (
    # Before all others, in turns: what is known of a graph is inferred anew after each.
    FoldBranches,
    BypassOptionals,
    # Here as well all has to be inferred anew.
    CheckpointLoops,
    # First, as in Grappler: it looks at the graph as the user wrote it.
    RelaxAllocator,
    # Before anything moves: what decides the bits of sums is held to what it is now.
    MergeAddends,
    PinSums,
    # Before there is an order, in which all else would wait for data.
    EffectsBeforeData,
    # Before shapes are folded: a sum of many inputs keeps others from reading them or not.
    RunningSums,
    # After sums of two were made of larger ones: those need no addend of their full size.
    NarrowBroadcasts,
    # What needlessly ties operations together or keeps tensors alive goes before there is an order.
    BypassBarriers,
    BypassCalls,
    FoldShapes,
    SerialLoops,
    # Before those that look at a simulation: it does not, and adds what they have to place.
    Recomputation,
    # Sums before copies: what need not be kept need not be swapped.
    AddnScheduling,
    Swapping,
    # Before there is an order: what is in it is other operations then.
    Fission,
    # Last: an order of all operations that there will be, and what is recomputed in it.
    Ordering,
    Rematerialization,
    # In the place of all others where XLA compiles the step.
    InlineCalls,
    LeanLoops,
    PoolingGradients,
    DepthwiseGradients,
    CompiledRematerialization,
)

__all__ = [
    "PASSES",
    "AddnScheduling",
    "BypassBarriers",
    "BypassCalls",
    "BypassOptionals",
    "CheckpointLoops",
    "CompiledRematerialization",
    "Context",
    "DepthwiseGradients",
    "EffectsBeforeData",
    "Fission",
    "FoldBranches",
    "FoldShapes",
    "InlineCalls",
    "LeanLoops",
    "MergeAddends",
    "NarrowBroadcasts",
    "Ordering",
    "Pass",
    "PinSums",
    "PoolingGradients",
    "Recomputation",
    "RelaxAllocator",
    "Rematerialization",
    "RunningSums",
    "SerialLoops",
    "Swapping",
]
